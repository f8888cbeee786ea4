"""Executors: the plug-ins that execute one task kind each, found by entry point."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Protocol
from uuid import UUID

from mainspring import wire
from mainspring.codec import encode
from mainspring.domain.execution import Outcome
from mainspring.domain.job import Definition
from mainspring.worker.guardian import MARK
from mainspring.worker.output import Output

GROUP = "mainspring.executors"


class Children(Protocol):
    """Who must know of every process group, to end it when the worker can't."""

    def born(self, group: int) -> None: ...
    def gone(self, group: int) -> None: ...


class Work:
    """One attempt, as an executor sees it. What only some kinds need is made when it is asked for."""

    __slots__ = ("_output", "_stop", "assignment", "children", "definition", "session_id", "stop_outcome")

    def __init__(
        self, assignment: wire.Assignment, definition: Definition, *, session_id: UUID, children: Children
    ) -> None:
        self.assignment = assignment
        self.definition = definition
        self.session_id = session_id
        self.children = children
        self.stop_outcome: Outcome | None = None  # set: the attempt must end, and this is how it ended
        self._stop: asyncio.Event | None = None
        self._output: Output | None = None

    @property
    def output(self) -> Output:
        if self._output is None:
            self._output = Output(self.assignment.execution_id, self.assignment.attempt)
        return self._output

    def take_output(self) -> list[wire.Output]:
        return self._output.take() if self._output is not None else []

    def end(self, outcome: Outcome) -> None:
        """Asks the executor to end the attempt now."""
        self.stop_outcome = outcome
        if self._stop is not None:
            self._stop.set()

    @property
    def stop(self) -> asyncio.Event:
        """Set once the attempt must end."""
        if self._stop is None:
            self._stop = asyncio.Event()
            if self.stop_outcome is not None:
                self._stop.set()
        return self._stop

    def values(self) -> dict[str, str]:
        """What templates may name."""
        fire_at = self._fire_at()
        values = {
            "fire_at": fire_at,
            "execution_date": fire_at[:10],
            "execution_id": str(self.assignment.execution_id),
            "attempt": str(self.assignment.attempt),
            "job": self.definition.name,
        }
        for name, value in (self.assignment.params or {}).items():
            values[f"params.{name}"] = value if isinstance(value, str) else encode(value).decode()
        return values

    def context(self) -> dict[str, str]:
        """The environment every task gets: who it is, and the key that makes its effects repeatable."""
        execution_id = str(self.assignment.execution_id)
        return {
            "MAINSPRING_EXECUTION_ID": execution_id,
            "MAINSPRING_JOB": self.definition.name,
            "MAINSPRING_ATTEMPT": str(self.assignment.attempt),
            "MAINSPRING_FIRE_AT": self._fire_at(),
            "MAINSPRING_IDEMPOTENCY_KEY": execution_id,
            MARK: str(self.session_id),
        }

    def _fire_at(self) -> str:
        return self.assignment.fire_at.isoformat().replace("+00:00", "Z")


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
