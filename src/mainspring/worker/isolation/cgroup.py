"""Control groups: the kernel limits the memory, processes and CPU of an attempt and everything it starts.

Supports v2 (one tree) and v1 (a tree per controller). A worker uses what it may write below its own group. A cgroup
also lists every process that an attempt started, so none of them can escape its end.

The limits are those of a cgroup, its processes are in a child of it: a program that may change its own cgroup, or make
further ones below, does not change its limits.
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
MEMBERS = "members"
REMOVE_S = 2.0
CPU_PERIOD_US = 100_000
_numbers = count()


@dataclass(frozen=True, slots=True)
class CgroupRoots:
    """The folders in which this worker may create cgroups, by controller; all the same folder in v2."""

    folders: Mapping[str, Path]
    unified: bool

    def create(self, limits: Mapping[str, int]) -> Cgroup:
        """Create a cgroup with limits: memory in bytes, pids as a count, cpu in thousandths of a core."""
        name = f"{PREFIX}{os.getpid()}-{next(_numbers)}"
        cgroup = Cgroup(sorted({root / name for root in self.folders.values()}), self)
        try:
            for folder in cgroup.folders:
                folder.mkdir()
                if folder.parent == self.folders.get("memory") and not self.unified:
                    _limit_children(folder)
                (folder / MEMBERS).mkdir()
            for controller, value in limits.items():
                for file, text in _settings(controller, value, unified=self.unified):
                    (self.folders[controller] / name / file).write_text(text)
        except OSError:
            cgroup.close()
            raise
        return cgroup

    def remove_orphans(self) -> None:
        """Remove cgroups, with their processes, of workers that died together with their guardians."""
        for root in set(self.folders.values()):
            for folder in list(root.glob(f"{PREFIX}*-*")):
                pid = folder.name.removeprefix(PREFIX).partition("-")[0]
                if pid.isdigit() and not Path(f"/proc/{pid}").exists():
                    Cgroup([folder], self).close()


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The cgroup of one attempt."""

    folders: list[Path]
    roots: CgroupRoots

    @property
    def procs_files(self) -> list[str]:
        """The files into which a process writes 0 to join."""
        return [str(folder / MEMBERS / "cgroup.procs") for folder in self.folders]

    def members(self) -> list[int]:
        return [pid for folder in _tree(self.folders[0]) for pid in _members(folder)]

    def out_of_memory(self) -> bool:
        """Whether the kernel killed a member for using too much memory."""
        return self._happened("memory", "memory.events" if self.roots.unified else "memory.oom_control", "oom_kill")

    def out_of_pids(self) -> bool:
        """Whether a member could not start a process because of the limit."""
        return self._happened("pids", "pids.events", "max")

    def close(self) -> None:
        """Kill all remaining members and remove the cgroup, with those that its members made."""
        deadline = time.monotonic() + REMOVE_S
        for root in self.folders:
            while folders := _tree(root):
                for folder in folders:
                    for pid in _members(folder):
                        with contextlib.suppress(ProcessLookupError, PermissionError):
                            os.kill(pid, signal.SIGKILL)
                    with contextlib.suppress(OSError):  # some members have not exited yet
                        folder.rmdir()
                if root.exists():
                    if time.monotonic() > deadline:
                        break
                    time.sleep(0.002)

    def _happened(self, controller: str, file: str, event: str) -> bool:
        if controller not in self.roots.folders:
            return False
        folder = self.roots.folders[controller] / self.folders[0].name
        return any(_counts(below / file, event) for below in _tree(folder))  # v1 counts where it happened


def find_cgroups(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> CgroupRoots | None:
    """Return the controllers this process may use, after trying them; None if there are none."""
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return None
    paths = {controller: path for _, names, path in lines for controller in names.split(",")}
    if (root / "cgroup.controllers").exists():
        return _find_unified(root / paths.get("", "/").lstrip("/"))
    folders = {}
    for controller in CONTROLLERS:
        folder = root / controller / paths.get(controller, "/").lstrip("/")
        if controller in paths and _is_writable(folder):
            folders[controller] = folder
    return CgroupRoots(folders, unified=False) if folders else None


def _find_unified(root: Path) -> CgroupRoots | None:
    """Find the v2 root. A v2 group with processes can't have limited children, so the worker moves into a child."""
    try:
        available = set((root / "cgroup.controllers").read_text().split()) & set(CONTROLLERS)
        if not available or not _is_writable(root):
            return None
        enabled = " ".join(f"+{controller}" for controller in sorted(available))
        try:
            (root / "cgroup.subtree_control").write_text(enabled)
        except OSError:
            if not all(_is_descendant(pid) for pid in _members(root)):
                return None  # shared with other programs, such as a login session: leave it as it is
            leaf = root / "worker"
            leaf.mkdir(exist_ok=True)
            for pid in _members(root):
                (leaf / "cgroup.procs").write_text(str(pid))
            (root / "cgroup.subtree_control").write_text(enabled)
    except OSError:
        return None
    return CgroupRoots(dict.fromkeys(sorted(available), root), unified=True)


def _tree(root: Path) -> list[Path]:
    """Return a cgroup and all below it, children first; empty if there is none."""
    return [Path(parent) for parent, _, _ in os.walk(root, topdown=False)] if root.exists() else []


def _limit_children(folder: Path) -> None:
    """Make the limits of a v1 memory cgroup hold for its children; always so in kernels from 5.11."""
    with contextlib.suppress(OSError):
        (folder / "memory.use_hierarchy").write_text("1")


def _counts(file: Path, event: str) -> bool:
    try:
        lines = [line.split() for line in file.read_text().splitlines()]
    except OSError:
        return False
    return any(len(words) == 2 and words[0] == event and int(words[1]) > 0 for words in lines)


def _is_descendant(pid: int) -> bool:
    """Whether a process is this one or descends from it."""
    while pid > 1 and pid != os.getpid():
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            return False
    return pid == os.getpid()


def _is_writable(root: Path) -> bool:
    probe = root / f"{PREFIX}{os.getpid()}-probe"
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
    quota = str(value * CPU_PERIOD_US // 1000)
    if unified:
        return {
            "memory": [("memory.max", str(value)), ("memory.swap.max", "0")],
            "pids": [("pids.max", str(value))],
            "cpu": [("cpu.max", f"{quota} {CPU_PERIOD_US}")],
        }[controller]
    return {
        "memory": [("memory.limit_in_bytes", str(value))],
        "pids": [("pids.max", str(value))],
        "cpu": [("cpu.cfs_period_us", str(CPU_PERIOD_US)), ("cpu.cfs_quota_us", quota)],
    }[controller]
