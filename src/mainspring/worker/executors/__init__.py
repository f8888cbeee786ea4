"""Executors: the plug-ins that execute one task kind each, found by entry point."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Protocol
from uuid import UUID

from mainspring.domain.execution import Outcome
from mainspring.domain.job import Definition
from mainspring.worker.output import Output

GROUP = "mainspring.executors"


class Children(Protocol):
    """Who must know of every process group, to end it when the worker can't."""

    def born(self, group: int) -> None: ...
    def gone(self, group: int) -> None: ...


@dataclass(slots=True)
class Work:
    """One attempt, as an executor sees it."""

    execution_id: UUID
    attempt: int
    definition: Definition
    values: Mapping[str, str]  # for templates
    context: Mapping[str, str]  # environment for the task
    output: Output
    children: Children
    stop: asyncio.Event = field(default_factory=asyncio.Event)  # set: end the attempt now
    stop_outcome: Outcome = "cancelled"


@dataclass(frozen=True, slots=True)
class Done:
    """How it ended."""

    outcome: Outcome
    exit_code: int | None = None
    error: str | None = None
    result: Any = None


class Executor(Protocol):
    """Executes attempts of one kind. Must end soon after `work.stop` is set."""

    async def execute(self, work: Work) -> Done: ...


def load_executors() -> dict[str, Executor]:
    """Every executor this installation has, by kind."""
    return {point.name: point.load()() for point in entry_points(group=GROUP)}
