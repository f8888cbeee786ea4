"""Sandbox limits for shell and python tasks."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

import msgspec

from mainspring.domain.bounds import Amount, Duration, Size
from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import Problem
from mainspring.domain.placement.resources import parse_amount

Isolation = Literal["process", "bwrap"]

RLIMITS, MEMORY, PIDS, CPU, DISK_RATE, BWRAP = (
    "sandbox/rlimits", "sandbox/memory", "sandbox/pids", "sandbox/cpu", "sandbox/disk_rate", "sandbox/bwrap",
)  # fmt: skip
"""Worker labels that name the limits a worker can enforce; the value names the mechanism."""

MASKED = ("/tmp", "/var/tmp", "/run")
"""Private and empty under bwrap: they hold other programs' files, sockets of container engines above all."""


class Sandbox(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Limits for a `shell` or `python` task.

    Even an empty sandbox sets no_new_privs and kills processes that the task leaves behind. `isolation: bwrap` also
    provides a read-only system, a private /tmp and process namespace, and no network unless `network` is true. `disk`
    limits the temporary folder, `file_size` each file. `disk_rate` is the write rate in bytes per second; faster
    writers are suspended until they are within it.
    """

    isolation: Isolation = "process"
    network: bool = False
    memory: Size | None = None
    cpu: Amount | None = None
    pids: Annotated[int, msgspec.Meta(ge=1, le=100_000)] | None = None
    disk: Size | None = None
    disk_rate: Size | None = None
    file_size: Size | None = None
    open_files: Annotated[int, msgspec.Meta(ge=8, le=1_000_000)] | None = None
    cpu_time: Duration | None = None


def amount(name: str, value: str | int | float | None) -> int | None:
    """Millicores, or bytes."""
    return None if value is None else parse_amount("cpu" if name == "cpu" else "memory", value)


def is_below(path: str, folders: Iterable[str]) -> bool:
    """Whether a normalized path is one of these folders or below one."""
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def folder_problems(sandbox: Sandbox, cwd: str) -> Iterator[Problem]:
    """Yield a problem if a working directory would not be visible. Links are resolved by the worker."""
    if sandbox.isolation == "bwrap" and is_below(posixpath.normpath(cwd).replace("/var/run", "/run", 1), MASKED):
        hint = f"use a folder outside {', '.join(MASKED)}, or leave it out: the temporary folder of the attempt"
        yield Problem("/task/cwd", f"{cwd} is hidden in the sandbox", hint)


def sandbox_labels(sandbox: Sandbox | None) -> dict[str, str]:
    """The labels that a worker needs to enforce this sandbox."""
    if sandbox is None:
        return {}
    asked = {MEMORY: sandbox.memory, PIDS: sandbox.pids, CPU: sandbox.cpu, DISK_RATE: sandbox.disk_rate}
    found = {RLIMITS: "*"} | {label: "*" for label, value in asked.items() if value is not None}
    return found | ({BWRAP: "*"} if sandbox.isolation == "bwrap" else {})


def sandbox_problems(sandbox: Sandbox, kind: str) -> Iterator[Problem]:
    if kind not in ("shell", "python"):
        hint = "a container task has limits of its own" if kind == "container" else "remove it"
        yield Problem("/sandbox", f"only shell and python tasks have a sandbox, and this is {kind}", hint)
    for name, least in (("memory", 1 << 20), ("disk", 4096), ("disk_rate", 1 << 16), ("file_size", 1), ("cpu", 10)):
        try:
            value = amount(name, getattr(sandbox, name))
        except ValueError as error:
            yield Problem(f"/sandbox/{name}", str(error), "such as 0.5" if name == "cpu" else "such as 512Mi")
            continue
        if value is not None and value < least:
            hint = "at least 0.01" if name == "cpu" else f"at least {least} bytes"
            yield Problem(f"/sandbox/{name}", f"{getattr(sandbox, name)} is too little", hint)
    if sandbox.cpu_time is not None:
        try:
            seconds = parse_duration(sandbox.cpu_time)
        except ValueError as error:
            yield Problem("/sandbox/cpu_time", str(error), "seconds, 90s, 10m")
        else:
            if seconds < 1:
                yield Problem("/sandbox/cpu_time", f"{sandbox.cpu_time!r} is too short", "at least 1s")
    if sandbox.network and sandbox.isolation != "bwrap":
        yield Problem("/sandbox/network", "only bwrap takes the network away", 'say "isolation": "bwrap", or remove it')
