"""The sandbox: the isolation this worker supports, and the confinement of one attempt."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mainspring.domain.duration import parse_duration
from mainspring.domain.placement.resources import show_amount
from mainspring.domain.sandbox import BWRAP, CPU, DISK_RATE, MEMORY, PIDS, RLIMITS, Sandbox, amount
from mainspring.worker.cleanup import CleanupRegistry
from mainspring.worker.isolation import confine
from mainspring.worker.isolation.cgroup import Cgroup, CgroupRoots, find_cgroups
from mainspring.worker.isolation.disk_rate import WriteThrottle, can_count_writes

PROBE_S = 10.0
CHECK_S = 0.05
MAX_CHECK_SHARE = 1 / 20
"""Checks take at most this share of one core."""
MASKED = ("/tmp", "/var/tmp", "/run")
"""Private and empty under bwrap: they hold other programs' files, sockets of container engines above all."""
PRIVATE_TMP_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SandboxSupport:
    """The isolation mechanisms that work on this machine."""

    cgroups: CgroupRoots | None = None
    bwrap: str | None = None

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


def detect_sandbox_support() -> SandboxSupport:
    """Try each mechanism; takes a few milliseconds. Also removes cgroups of dead workers."""
    cgroups = find_cgroups()
    if cgroups is not None:
        cgroups.remove_orphans()
    bwrap = shutil.which("bwrap")
    if bwrap is not None:
        options = _bwrap_options(network=False, tmp_bytes=PRIVATE_TMP_BYTES, keep=(), folder=None)
        try:
            tried = subprocess.run([bwrap, *options, "--", "true"], capture_output=True, timeout=PROBE_S, check=False)
            bwrap = bwrap if tried.returncode == 0 else None
        except (OSError, subprocess.TimeoutExpired):
            bwrap = None
    return SandboxSupport(cgroups, bwrap)


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

    def argv(self, words: Sequence[str], *, keep: Iterable[str] = ()) -> list[str]:
        """Return the command that runs `words` confined. `keep` names folders that stay visible below masked ones."""
        if self._sandbox.isolation == "bwrap":
            assert self._support.bwrap is not None, "only workers with bwrap are assigned such a job"
            options = _bwrap_options(
                network=self._sandbox.network,
                tmp_bytes=self._disk_limit or PRIVATE_TMP_BYTES,
                keep=keep,
                folder=self._folder,
            )
            words = [self._support.bwrap, *options, "--", *words]
        settings = {
            "procs_files": self._cgroup.procs_files if self._cgroup is not None else [],
            "rlimits": self._rlimits(),
        }
        return [sys.executable, "-I", "-S", confine.__file__, json.dumps(settings), *words]

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


def _bwrap_options(*, network: bool, tmp_bytes: int, keep: Iterable[str], folder: Path | None) -> list[str]:
    """Return bubblewrap's options: a read-only system, private /tmp and processes, no capabilities."""
    options = ["--die-with-parent", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--cap-drop", "ALL"]
    options += [] if network else ["--unshare-net"]
    options += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    for masked in MASKED:
        options += ["--size", str(tmp_bytes), "--tmpfs", masked]
    if network:  # many systems resolve host names with files in here
        options += ["--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve"]
    for path in sorted({os.path.realpath(path) for path in keep}):
        if any(path.startswith(f"{masked}/") for masked in MASKED):
            options += ["--ro-bind-try", path, path]
    if folder is not None:
        options += ["--bind", str(folder), str(folder)]
    data = os.path.realpath(".mainspring")  # an embedded database and its credentials
    return options + (["--tmpfs", data] if os.path.isdir(data) else [])


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
