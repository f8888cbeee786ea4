"""Settings of the embedded server: durable, and tuned for many small transactions on one machine."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from .binaries import Binaries
from .errors import BadSetting

MB = 1024 * 1024

# The supervisor decides where the server listens and keeps its files.
RESERVED = frozenset(
    (
        "config_file",
        "data_directory",
        "external_pid_file",
        "hba_file",
        "ident_file",
        "listen_addresses",
        "logging_collector",
        "port",
        "unix_socket_directories",
        "unix_socket_group",
        "unix_socket_permissions",
    )
)


def server_settings(binaries: Binaries, overrides: Mapping[str, str]) -> dict[str, str]:
    """Return every setting of the server; `overrides` have precedence."""
    return _defaults(binaries) | _checked(overrides)


def render(settings: Mapping[str, str]) -> str:
    """Return the settings as a configuration file."""
    lines = ["# Overwritten at each start. For permanent changes use ALTER SYSTEM, which has precedence."]
    lines += [f"{name} = '{_escaped(value)}'" for name, value in settings.items()]
    return "\n".join(lines) + "\n"


def access_rules(port: int | None) -> str:
    """Return `pg_hba.conf`: passwords for all roles; TCP only with a port, and only from this machine."""
    lines = ["local all all scram-sha-256"]
    if port is not None:
        lines.append("host all all 127.0.0.1/32 scram-sha-256")
    return "\n".join(lines) + "\n"


def _defaults(binaries: Binaries) -> dict[str, str]:
    preload = "pg_stat_statements"
    return {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "shared_buffers": f"{min(1024, max(128, usable_memory() // 4 // MB))}MB",
        "huge_pages": "try",
        "max_connections": "200",
        "max_wal_size": "4GB",
        "wal_compression": "on",
        "checkpoint_timeout": "15min",
        # After a crash: one journal commit instead of an fsync for each file of the cluster.
        **({"recovery_init_sync_method": "syncfs"} if sys.platform == "linux" else {}),
        "autovacuum_naptime": "10s",
        "autovacuum_vacuum_cost_delay": "0",
        "random_page_cost": "1.1",
        "jit": "off",
        "track_io_timing": "on",
        "shared_preload_libraries": preload if binaries.has_library(preload) else "",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "lc_messages": "C",
        "log_min_messages": "warning",
        "log_checkpoints": "off",
        "log_line_prefix": "%m [%p] ",
    }


def _checked(overrides: Mapping[str, str]) -> dict[str, str]:
    for name in overrides:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name):
            raise BadSetting(f"{name!r} is not a valid name of a PostgreSQL setting")
        if name.lower() in RESERVED:
            raise BadSetting(f"the setting {name} is reserved for the supervisor; remove it")
    return {name.lower(): value for name, value in overrides.items()}


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n")


def usable_memory() -> int:
    """Return the bytes of memory that this process may use: the machine's, or its cgroup limit."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([total, *_group_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))])


def _group_limits(membership: Path, root: Path) -> Iterator[int]:
    """Yield the memory limits of this process's cgroups and their parents, for cgroup v1 and v2."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = top / path.strip("/")
        for folder in (group, *group.parents):
            with suppress(OSError, ValueError):  # "max", or a group that is not visible in a container
                yield int((folder / name).read_text())
            if folder == top:
                break
