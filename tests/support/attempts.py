"""Attempts and hosts for executors, without a server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from mainspring import wire
from mainspring.domain.job import Definition, Task
from mainspring.domain.params import Param
from mainspring.domain.retry import RetryPolicy
from mainspring.worker.executors import Host, Work

FIRE_AT = datetime(2026, 11, 14, 23, 30, tzinfo=UTC)
SESSION_ID = uuid4()


class Registry:
    """A cleanup registry without a guardian; `groups` are the registered process groups."""

    def __init__(self) -> None:
        self.groups: set[int] = set()

    def add_process_group(self, group: int) -> None:
        self.groups.add(group)

    def remove_process_group(self, group: int) -> None:
        self.groups.discard(group)

    def add_process(self, pid: int, started: int) -> None: ...
    def remove_process(self, pid: int, started: int) -> None: ...
    def add_cgroup(self, procs_file: str) -> None: ...
    def remove_cgroup(self, procs_file: str) -> None: ...
    def add_folder(self, path: str) -> None: ...
    def add_engine(self, path: str) -> None: ...


def attempt(
    task: Task,
    params: dict[str, Any] | None = None,
    *,
    timeout_s: float = 60.0,
    timezone: str | None = None,
    declared: dict[str, Param] | None = None,
) -> Work:
    definition = Definition(
        name="the-job",
        task=task,
        timeout_s=timeout_s,
        retries=RetryPolicy(),
        delivery="at_least_once",
        params=declared or {},
        timezone=timezone,
    )
    given = wire.Assignment(
        execution_id=uuid4(), attempt=2, definition="d", job_id=uuid4(), fire_at=FIRE_AT, params=params
    )
    return Work(given, definition, session_id=SESSION_ID, cleanup=Registry())


def host(slots: int = 4, modules: Sequence[str] = (), allow_net: Sequence[str] = (), **more: Any) -> Host:
    return Host(slots, Registry(), modules, allow_net, **more)


def written(work: Work, stream: str = "stdout") -> str:
    return b"".join(chunk.data for chunk in work.take_output() if chunk.stream == stream).decode()
