"""The sandbox: what this worker can hold attempts to, and the cell one attempt runs in."""

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
from typing import Protocol

from mainspring.domain.duration import parse_duration
from mainspring.domain.placement.resources import show_amount
from mainspring.domain.sandbox import BWRAP, CPU, DISK_RATE, MEMORY, PIDS, RLIMITS, Sandbox, amount
from mainspring.worker.isolation import confine
from mainspring.worker.isolation.cgroup import Cgroups, Group, find_cgroups
from mainspring.worker.isolation.disk_rate import Pace, can_count

PROBE_S = 10.0
LOOK_S = 0.05
LOOK_SHARE = 20
"""Looking takes at most one part in so many of a core."""
MASKED = ("/tmp", "/var/tmp", "/run")
"""Private and empty under bwrap: what is in there is others', sockets of engines above all."""
PRIVATE_TMP = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Means:
    """What was found to work here."""

    cgroups: Cgroups | None = None
    bwrap: str | None = None

    def labels(self) -> dict[str, str]:
        """For whoever selects a worker: a limit, and what holds it."""
        bases = self.cgroups.bases if self.cgroups is not None else {}
        found = {RLIMITS: "yes", MEMORY: "cgroup" if "memory" in bases else "rlimit"}
        if "pids" in bases:
            found[PIDS] = "cgroup"
        elif os.geteuid() != 0:  # root may start as many as it likes
            found[PIDS] = "rlimit"
        if "cpu" in bases:
            found[CPU] = "cgroup"
        if bases and can_count():
            found[DISK_RATE] = "stopping"
        if self.bwrap is not None:
            found[BWRAP] = "yes"
        return found


def find_means() -> Means:
    """Tries out what this worker may do; takes a few milliseconds."""
    cgroups = find_cgroups()
    if cgroups is not None:
        cgroups.clear_the_dead()
    bwrap = shutil.which("bwrap")
    if bwrap is not None:
        trial = [bwrap, *_walls(network=False, size=PRIVATE_TMP, keep=(), folder=None), "--", "true"]
        try:
            tried = subprocess.run(trial, capture_output=True, timeout=PROBE_S, check=False)
            bwrap = bwrap if tried.returncode == 0 else None
        except (OSError, subprocess.TimeoutExpired):
            bwrap = None
    return Means(cgroups, bwrap)


class Watch(Protocol):
    """Who ends what is in a cell when the worker can't."""

    def cell(self, door: str) -> None: ...
    def cell_gone(self, door: str) -> None: ...


class Cell:
    """One attempt's confinement. Close it when the attempt has ended: nothing in it lives on."""

    def __init__(self, sandbox: Sandbox, means: Means, folder: Path, watch: Watch) -> None:
        self._sandbox = sandbox
        self._watch = watch
        self._means = means
        self._folder = folder
        self._group: Group | None = None
        limits = {name: amount(name, getattr(sandbox, name)) for name in ("memory", "cpu")} | {"pids": sandbox.pids}
        self._limits = {name: value for name, value in limits.items() if value is not None}
        self.most_disk = amount("disk", sandbox.disk)
        self.over_disk = False
        self.pause_s = LOOK_S
        self._pace: Pace | None = None
        if means.cgroups is not None:
            held = {name: value for name, value in self._limits.items() if name in means.cgroups.bases}
            self._group = means.cgroups.make(held)
            watch.cell(self._group.doors[0])
            if (rate := amount("disk_rate", sandbox.disk_rate)) is not None:
                self._pace = Pace(rate, self._group.members)

    def argv(self, words: Sequence[str], *, keep: Iterable[str] = ()) -> list[str]:
        """The command that runs `words` inside. `keep` names folders that must be seen though they are masked."""
        if self._sandbox.isolation == "bwrap":
            assert self._means.bwrap is not None, "only workers with bwrap are given such a job"
            walls = _walls(
                network=self._sandbox.network, size=self.most_disk or PRIVATE_TMP, keep=keep, folder=self._folder
            )
            words = [self._means.bwrap, *walls, "--", *words]
        settings = {"doors": self._group.doors if self._group is not None else [], "rlimits": self._rlimits()}
        return [sys.executable, "-I", "-S", confine.__file__, json.dumps(settings), *words]

    @property
    def needs_looks(self) -> bool:
        """Whether `look` is to be called, every `pause_s`."""
        return self.most_disk is not None or self._pace is not None

    def look(self) -> bool:
        """Whether the temporary folder has outgrown its limit; the attempt must end then."""
        began = time.monotonic()
        if self._pace is not None:
            self._pace.look()
        if self.most_disk is not None and not self.over_disk:
            self.over_disk = _used(self._folder) > self.most_disk
        self.pause_s = max(LOOK_S, LOOK_SHARE * (time.monotonic() - began))
        return self.over_disk

    def let_end(self) -> None:
        """It is about to be asked to end, and must be able to hear it."""
        if self._pace is not None:
            self._pace.release()

    def cause(self, code: int | None) -> str | None:
        """Which limit ended it, as far as one did."""
        sandbox = self._sandbox
        if self.over_disk:
            return f"it wrote more than {show_amount('disk', self.most_disk or 0)} into its temporary folder"
        if self._group is not None and self._group.out_of_memory():
            return f"out of memory: it used more than {show_amount('memory', self._limits.get('memory', 0))}"
        ended_by = -code if code is not None and code < 0 else (code or 0) - 128
        if ended_by == signal.SIGXFSZ:
            return f"a file it wrote grew over {show_amount('disk', amount('file_size', sandbox.file_size) or 0)}"
        if ended_by == signal.SIGXCPU:
            return f"it used more than {sandbox.cpu_time} of cpu"
        if self._group is not None and self._group.too_many():
            return f"it started more than {sandbox.pids} processes"
        return None

    def close(self) -> None:
        if self._group is not None:
            self._group.close()
            self._watch.cell_gone(self._group.doors[0])

    def _rlimits(self) -> dict[str, int]:
        sandbox, held = self._sandbox, self._means.labels()
        found: dict[str, int | None] = {
            "CORE": 0,
            "FSIZE": amount("file_size", sandbox.file_size),
            "NOFILE": sandbox.open_files,
            "CPU": None if sandbox.cpu_time is None else int(parse_duration(sandbox.cpu_time)),
        }
        if held.get(MEMORY) == "rlimit":
            found["AS"] = self._limits.get("memory")
        if held.get(PIDS) == "rlimit":
            found["NPROC"] = sandbox.pids
        return {name: value for name, value in found.items() if value is not None}


def _walls(*, network: bool, size: int, keep: Iterable[str], folder: Path | None) -> list[str]:
    """bubblewrap's options: a read-only system, /tmp and processes of its own, no capabilities."""
    walls = ["--die-with-parent", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--cap-drop", "ALL"]
    walls += [] if network else ["--unshare-net"]
    walls += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    for masked in MASKED:
        walls += ["--size", str(size), "--tmpfs", masked]
    if network:  # names resolve by what is here on many systems
        walls += ["--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve"]
    for path in sorted({os.path.realpath(path) for path in keep}):
        if any(path.startswith(f"{masked}/") for masked in MASKED):
            walls += ["--ro-bind-try", path, path]
    if folder is not None:
        walls += ["--bind", str(folder), str(folder)]
    data = os.path.realpath(".mainspring")  # an embedded database, and the keys to it
    return walls + (["--tmpfs", data] if os.path.isdir(data) else [])


def _used(folder: Path) -> int:
    """Bytes on disk of everything below; what vanishes meanwhile does not count."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
            except OSError:
                continue
    return total
