"""The sandbox: the isolation this worker supports, and the confinement of one attempt."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from mainspring.domain.duration import parse_duration
from mainspring.domain.placement.resources import show_amount
from mainspring.domain.sandbox import BWRAP, CPU, DISK_RATE, MASKED, MEMORY, PIDS, RLIMITS, Sandbox, amount, is_below
from mainspring.worker.cleanup import CleanupRegistry
from mainspring.worker.isolation import confine
from mainspring.worker.isolation.cgroup import Cgroup, CgroupRoots, find_cgroups
from mainspring.worker.isolation.disk_rate import WriteThrottle, can_count_writes

log = structlog.get_logger()

PROBE_S = 10.0
CHECK_S = 0.05
MAX_CHECK_SHARE = 1 / 20
"""Checks take at most this share of one core."""
PRIVATE_TMP_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SandboxSupport:
    """The isolation mechanisms that work on this machine."""

    cgroups: CgroupRoots | None = None
    bwrap: str | None = None
    protects_cgroups: bool = False  # whether programs can be kept from leaving their cgroup
    hidden: tuple[str, ...] = ()  # files that bwrap hides, such as the socket of a container engine

    def labels(self) -> dict[str, str]:
        """Return worker labels that name each supported limit and the mechanism that enforces it."""
        controllers = self.cgroups.folders if self.cgroups is not None else {}
        found = {RLIMITS: "yes", MEMORY: "cgroup" if "memory" in controllers else "rlimit"}
        if "pids" in controllers:
            found[PIDS] = "cgroup"
        elif os.geteuid() != 0:  # rlimits do not limit how many processes root starts
            found[PIDS] = "rlimit"
        if "cpu" in controllers:
            found[CPU] = "cgroup"
        if controllers and can_count_writes():
            found[DISK_RATE] = "stopping"
        if self.bwrap is not None:
            found[BWRAP] = "yes"
        return found


def detect_sandbox_support(*, engine: str | None = None) -> SandboxSupport:
    """Try each mechanism; takes some milliseconds. Also removes cgroups of dead workers.

    `engine` is the socket of a container engine, which no sandbox shows.
    """
    cgroups = find_cgroups()
    if cgroups is not None:
        cgroups.remove_orphans()
    bwrap = shutil.which("bwrap")
    if bwrap is not None:
        options = _bwrap_options(network=False, tmp_bytes=PRIVATE_TMP_BYTES, keep=(), hidden=(), folder=None)
        try:
            tried = subprocess.run([bwrap, *options, "--", "true"], capture_output=True, timeout=PROBE_S, check=False)
            bwrap = bwrap if tried.returncode == 0 else None
        except (OSError, subprocess.TimeoutExpired):
            bwrap = None
    protects = cgroups is not None and _can_protect_cgroups()
    if cgroups is not None and not protects:
        log.warning("sandbox.cgroups_unprotected", effect="only isolation: bwrap keeps programs in their cgroup")
    return SandboxSupport(cgroups, bwrap, protects, () if engine is None else (os.path.realpath(engine),))


def _can_protect_cgroups() -> bool:
    settings = {"procs_files": [], "protects_cgroups": True, "rlimits": {}, "options": [], "cwd": None, "env": {}}
    descriptor = _as_file(json.dumps(settings | {"argv": ["/bin/true"]}).encode())
    try:
        return (
            subprocess.run(
                _launcher(descriptor), env={}, pass_fds=[descriptor], capture_output=True, timeout=PROBE_S, check=False
            ).returncode
            == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        os.close(descriptor)


class Confinement:
    """The sandbox of one attempt. `close` kills every process that is still in it."""

    def __init__(self, sandbox: Sandbox, support: SandboxSupport, folder: Path, cleanup: CleanupRegistry) -> None:
        self._sandbox = sandbox
        self._cleanup = cleanup
        self._support = support
        self._folder = folder
        self._cgroup: Cgroup | None = None
        limits = {name: amount(name, getattr(sandbox, name)) for name in ("memory", "cpu")} | {"pids": sandbox.pids}
        self._limits = {name: value for name, value in limits.items() if value is not None}
        self._disk_limit = amount("disk", sandbox.disk)
        self._throttle: WriteThrottle | None = None
        self.over_disk = False
        self.check_interval_s = CHECK_S
        if support.cgroups is not None:
            enforced = {name: value for name, value in self._limits.items() if name in support.cgroups.folders}
            self._cgroup = support.cgroups.create(enforced)
            cleanup.add_cgroup(self._cgroup.procs_files[0])
            if (rate := amount("disk_rate", sandbox.disk_rate)) is not None:
                self._throttle = WriteThrottle(rate, self._cgroup.members)

    def command(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        keep: Iterable[str] = (),
    ) -> tuple[list[str], int]:
        """Return the command that runs `words` confined, and the descriptor that it must inherit.

        It is started with an empty environment; `env` applies to the program only. `keep` names folders of the
        operator that stay visible below masked ones.
        """
        options: list[str] = []
        words = list(words)
        if self._sandbox.isolation == "bwrap":
            if self._support.bwrap is None:  # only workers with bwrap are assigned such a job
                raise RuntimeError("bubblewrap does not work on this worker")
            options = _bwrap_options(
                network=self._sandbox.network,
                tmp_bytes=self._disk_limit or PRIVATE_TMP_BYTES,
                keep=keep,
                hidden=self._support.hidden,
                folder=self._folder,
            )
            options += [word for name, value in env.items() for word in ("--setenv", name, value)]
            options += [] if cwd is None else ["--chdir", cwd]
            words, env, cwd = [self._support.bwrap, "--", *words], {}, None
        settings = {
            "procs_files": self._cgroup.procs_files if self._cgroup is not None else [],
            "protects_cgroups": self._support.protects_cgroups and bool(self._limits) and not options,
            "rlimits": self._rlimits(),
            "argv": words,
            "options": options,
            "env": dict(env) | ({} if cwd is None else {"PWD": cwd}),
            "cwd": cwd,
        }
        descriptor = _as_file(json.dumps(settings).encode())
        return _launcher(descriptor), descriptor

    def hides(self, path: str) -> bool:
        """Whether a folder of this machine is not visible in the sandbox."""
        if self._sandbox.isolation != "bwrap":
            return False
        real = os.path.realpath(path)
        return is_below(real, (*_masked(self._folder), _data_folder())) and not is_below(real, (str(self._folder),))

    @property
    def needs_checks(self) -> bool:
        """Whether `check` must be called every `check_interval_s`."""
        return self._disk_limit is not None or self._throttle is not None

    def check(self) -> bool:
        """Apply the disk limits; return whether the temporary folder is too large, so that the attempt must end."""
        began = time.monotonic()
        if self._throttle is not None:
            self._throttle.check()
        if self._disk_limit is not None and not self.over_disk:
            self.over_disk = _disk_usage(self._folder) > self._disk_limit
        self.check_interval_s = max(CHECK_S, (time.monotonic() - began) / MAX_CHECK_SHARE)
        return self.over_disk

    def release(self) -> None:
        """Resume paused processes, so that they can receive the signal to end."""
        if self._throttle is not None:
            self._throttle.release()

    def exceeded_limit(self, exit_code: int | None) -> str | None:
        """Return which limit ended the attempt, or None."""
        sandbox = self._sandbox
        if self.over_disk:
            return f"it wrote more than {show_amount('disk', self._disk_limit or 0)} into its temporary folder"
        if self._cgroup is not None and self._cgroup.out_of_memory():
            return f"out of memory: it used more than {show_amount('memory', self._limits.get('memory', 0))}"
        ended_by = -exit_code if exit_code is not None and exit_code < 0 else (exit_code or 0) - 128
        if ended_by == signal.SIGXFSZ:
            return f"it wrote a file of more than {show_amount('disk', amount('file_size', sandbox.file_size) or 0)}"
        if ended_by == signal.SIGXCPU:
            return f"it used more than {sandbox.cpu_time} of CPU time"
        if self._cgroup is not None and self._cgroup.out_of_pids():
            return f"it started more than {sandbox.pids} processes"
        return None

    def close(self) -> None:
        if self._cgroup is not None:
            self._cgroup.close()
            self._cleanup.remove_cgroup(self._cgroup.procs_files[0])

    def _rlimits(self) -> dict[str, int]:
        sandbox, enforced_by = self._sandbox, self._support.labels()
        found: dict[str, int | None] = {
            "CORE": 0,
            "FSIZE": amount("file_size", sandbox.file_size),
            "NOFILE": sandbox.open_files,
            "CPU": None if sandbox.cpu_time is None else int(parse_duration(sandbox.cpu_time)),
        }
        if enforced_by.get(MEMORY) == "rlimit":
            found["AS"] = self._limits.get("memory")
        if enforced_by.get(PIDS) == "rlimit":
            found["NPROC"] = sandbox.pids
        return {name: value for name, value in found.items() if value is not None}


def _bwrap_options(
    *, network: bool, tmp_bytes: int, keep: Iterable[str], hidden: Iterable[str], folder: Path | None
) -> list[str]:
    """Return bubblewrap's options: a read-only system, private /tmp and processes, no capabilities.

    Later options cover earlier ones: what is hidden comes last, and no path that a job names is bound.
    """
    options = ["--die-with-parent", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]
    options += ["--cap-drop", "ALL"]
    options += [] if network else ["--unshare-net"]
    options += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    masked = _masked(folder)
    for place in masked:
        options += ["--size", str(tmp_bytes), "--tmpfs", place]
    if network:  # many systems resolve host names with files in here
        options += ["--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve"]
    for path in sorted({os.path.realpath(path) for path in keep}):
        if path not in masked and is_below(path, masked):
            options += ["--ro-bind-try", path, path]
    if folder is not None:
        options += ["--bind", str(folder), str(folder)]
    if os.path.isdir(_data_folder()):
        options += ["--tmpfs", _data_folder()]
    for path in hidden:
        if os.path.exists(path) and not is_below(path, masked):
            options += ["--ro-bind", os.devnull, path]
    return options


def _masked(folder: Path | None) -> tuple[str, ...]:
    """The folders in whose place an attempt sees empty ones.

    Attempts of other jobs, and of other workers of the same user, have theirs beside `folder`, below `TMPDIR`.
    """
    if folder is None or is_below(pool := os.path.realpath(folder.parent), MASKED):
        return MASKED
    temporary = os.path.dirname(pool)
    return (*MASKED, pool if temporary in ("/", os.getcwd()) else temporary)


def _data_folder() -> str:
    """Where `mainspring dev` keeps an embedded database and its credentials."""
    return os.path.realpath(".mainspring")


def _launcher(descriptor: int) -> list[str]:
    return [sys.executable, "-I", "-S", confine.__file__, str(descriptor)]


def _as_file(content: bytes) -> int:
    """Return a descriptor of a file in memory: command lines are visible to other users, and limited in size."""
    descriptor = os.memfd_create("sandbox")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _disk_usage(folder: Path) -> int:
    """Return the bytes on disk of all files below; files that vanish meanwhile do not count."""
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
            except OSError:
                continue
    return total
