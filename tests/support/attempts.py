"""Attempts without a server: what an executor is given, and a host for it."""

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


class Groups:
    """Hears of process groups as the guardian does."""

    def __init__(self) -> None:
        self.living: set[int] = set()

    def born(self, group: int) -> None:
        self.living.add(group)

    def gone(self, group: int) -> None:
        self.living.discard(group)

    def cell(self, door: str) -> None: ...
    def cell_gone(self, door: str) -> None: ...
    def folder(self, path: str) -> None: ...

    def engine(self, path: str) -> None:
        self.engine_path = path


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
    return Work(given, definition, session_id=uuid4(), children=Groups())


def host(slots: int = 4, modules: Sequence[str] = (), allow_net: Sequence[str] = (), **more: Any) -> Host:
    return Host(slots, Groups(), modules, allow_net, **more)


def written(work: Work, stream: str = "stdout") -> str:
    return b"".join(chunk.data for chunk in work.take_output() if chunk.stream == stream).decode()
