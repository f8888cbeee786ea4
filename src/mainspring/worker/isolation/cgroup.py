"""Control groups: the kernel holds an attempt and everything it starts to memory, processes and cpu.

Both forms of them: one tree (v2), or a tree for each controller (v1). A worker uses what it may write below its own
group. A group also names everything an attempt started, so that nothing can hide from its end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

CONTROLLERS = ("memory", "pids", "cpu")
PREFIX = "mainspring-"
GONE_S = 2.0
PERIOD_US = 100_000
_numbers = count()


@dataclass(frozen=True, slots=True)
class Cgroups:
    """Where this worker may make groups: a folder for each controller, the same one in v2."""

    bases: Mapping[str, Path]
    unified: bool

    def make(self, limits: Mapping[str, int]) -> Group:
        """A group with these limits: memory in bytes, pids as a count, cpu in thousandths of a core."""
        name = f"{PREFIX}{os.getpid()}-{next(_numbers)}"
        group = Group(sorted({base / name for base in self.bases.values()}), self)
        try:
            for folder in group.folders:
                folder.mkdir()
            for controller, value in limits.items():
                for file, text in _settings(controller, value, unified=self.unified):
                    (self.bases[controller] / name / file).write_text(text)
        except OSError:
            group.close()
            raise
        return group

    def clear_the_dead(self) -> None:
        """Ends what attempts of dead workers left: both the worker and its guardian were killed."""
        for base in set(self.bases.values()):
            for folder in base.glob(f"{PREFIX}*-*"):
                pid = folder.name.removeprefix(PREFIX).partition("-")[0]
                if pid.isdigit() and not Path(f"/proc/{pid}").exists():
                    Group([folder], self).close()


@dataclass(frozen=True, slots=True)
class Group:
    """One attempt's group."""

    folders: list[Path]
    cgroups: Cgroups

    @property
    def doors(self) -> list[str]:
        """Files into which a process writes 0 to join."""
        return [str(folder / "cgroup.procs") for folder in self.folders]

    def members(self) -> list[int]:
        return _members(self.folders[0])

    def out_of_memory(self) -> bool:
        return self._counted("memory", "memory.events" if self.cgroups.unified else "memory.oom_control", "oom_kill")

    def too_many(self) -> bool:
        return self._counted("pids", "pids.events", "max")

    def close(self) -> None:
        """Kills all that is left in it, and removes it."""
        deadline = time.monotonic() + GONE_S
        for folder in self.folders:
            while folder.exists():
                for pid in _members(folder):
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:  # the last of them are not gone yet
                    if time.monotonic() > deadline:
                        break
                    time.sleep(0.002)

    def _counted(self, controller: str, file: str, word: str) -> bool:
        if controller not in self.cgroups.bases:
            return False
        try:
            lines = (self.cgroups.bases[controller] / self.folders[0].name / file).read_text().splitlines()
        except OSError:
            return False
        return any(line.split()[0] == word and int(line.split()[1]) > 0 for line in lines if len(line.split()) == 2)


def find_cgroups(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> Cgroups | None:
    """What this process may use, tried out; None if nothing."""
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return None
    paths = {controller: path for _, names, path in lines for controller in names.split(",")}
    if (root / "cgroup.controllers").exists():
        return _unified(root / paths.get("", "/").lstrip("/"))
    bases = {}
    for controller in CONTROLLERS:
        base = root / controller / paths.get(controller, "/").lstrip("/")
        if controller in paths and _may_make(base):
            bases[controller] = base
    return Cgroups(bases, unified=False) if bases else None


def _unified(base: Path) -> Cgroups | None:
    """In one tree, a group with processes has no limited children: the worker moves into a child itself."""
    try:
        there = set((base / "cgroup.controllers").read_text().split()) & set(CONTROLLERS)
        if not there or not _may_make(base):
            return None
        wanted = " ".join(f"+{controller}" for controller in sorted(there))
        try:
            (base / "cgroup.subtree_control").write_text(wanted)
        except OSError:
            if not all(_ours(pid) for pid in _members(base)):
                return None  # somebody's session: not ours to rearrange
            leaf = base / "worker"
            leaf.mkdir(exist_ok=True)
            for pid in _members(base):
                (leaf / "cgroup.procs").write_text(str(pid))
            (base / "cgroup.subtree_control").write_text(wanted)
    except OSError:
        return None
    return Cgroups(dict.fromkeys(sorted(there), base), unified=True)


def _ours(pid: int) -> bool:
    """Whether it is this process, or descends from it."""
    while pid > 1 and pid != os.getpid():
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            return False
    return pid == os.getpid()


def _may_make(base: Path) -> bool:
    probe = base / f"{PREFIX}{os.getpid()}-probe"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return True


def _members(folder: Path) -> list[int]:
    try:
        return [int(word) for word in (folder / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _settings(controller: str, value: int, *, unified: bool) -> list[tuple[str, str]]:
    quota = str(value * PERIOD_US // 1000)
    if unified:
        return {
            "memory": [("memory.max", str(value)), ("memory.swap.max", "0")],
            "pids": [("pids.max", str(value))],
            "cpu": [("cpu.max", f"{quota} {PERIOD_US}")],
        }[controller]
    return {
        "memory": [("memory.limit_in_bytes", str(value))],
        "pids": [("pids.max", str(value))],
        "cpu": [("cpu.cfs_period_us", str(PERIOD_US)), ("cpu.cfs_quota_us", quota)],
    }[controller]
