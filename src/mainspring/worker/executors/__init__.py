"""Executors: the plug-ins that execute one task kind each, found by entry point."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from uuid import UUID
from zoneinfo import ZoneInfo

from mainspring import wire
from mainspring.domain.execution import Outcome
from mainspring.domain.job import Definition
from mainspring.domain.params import defaults
from mainspring.domain.plugin import OWN_KINDS, PluginTask
from mainspring.domain.template import fill
from mainspring.worker.checkpoint import Checkpoint
from mainspring.worker.guardian import MARK
from mainspring.worker.isolation.sandbox import Means
from mainspring.worker.output import Output
from mainspring.worker.progress import Progress

GROUP = "mainspring.executors"


class Children(Protocol):
    """Who must know of every process group, to end it when the worker can't."""

    def born(self, group: int) -> None: ...
    def gone(self, group: int) -> None: ...
    def cell(self, door: str) -> None:
        """Whatever is in the control group with this list of processes ends, too."""

    def cell_gone(self, door: str) -> None: ...
    def folder(self, path: str) -> None:
        """With files of attempts: it goes with the worker."""

    def engine(self, path: str) -> None:
        """Containers that bear the session as a label are made by the engine at this socket."""


class Work:
    """One attempt, as an executor sees it. What only some kinds need is made when it is asked for."""

    __slots__ = (
        "_on_end", "_output", "_stop", "artifacts", "assignment", "checkpoint", "children", "definition", "inputs",
        "progress", "session_id", "started", "stop_outcome",
    )  # fmt: skip

    def __init__(
        self, assignment: wire.Assignment, definition: Definition, *, session_id: UUID, children: Children
    ) -> None:
        self.assignment = assignment
        self.definition = definition
        self.session_id = session_id
        self.children = children
        self.stop_outcome: Outcome | None = None  # set: the attempt must end, and this is how it ended
        self.started = 0.0  # on the monotonic clock
        self.progress: Progress | None = None
        self.checkpoint: Checkpoint | None = None
        self.artifacts: Path | None = None  # a folder with files to keep; it is removed once they are sent
        self.inputs: Path | None = None  # a folder with files of others; it goes with the attempt
        self._stop: asyncio.Event | None = None
        self._on_end: Callable[[Work], None] | None = None
        self._output: Output | None = None

    @property
    def output(self) -> Output:
        if self._output is None:
            self._output = Output(self.assignment.execution_id, self.assignment.attempt)
        return self._output

    def take_output(self) -> list[wire.Output]:
        return self._output.take() if self._output is not None else []

    @property
    def last_checkpoint(self) -> Any:
        """What an earlier attempt left; None if there was none, or it left nothing."""
        return None if self.checkpoint is None else self.checkpoint.last

    def finish_output(self) -> None:
        """Nothing more is written."""
        if self._output is not None:
            self._output.finish("stdout")
            self._output.finish("stderr")

    def end(self, outcome: Outcome) -> None:
        """Asks the executor to end the attempt now."""
        self.stop_outcome = outcome
        if self._stop is not None:
            self._stop.set()
        if self._on_end is not None:
            self._on_end(self)

    def on_end(self, hear: Callable[[Work], None]) -> None:
        """Has `hear` called when the attempt must end; at once, if it is so already."""
        self._on_end = hear
        if self.stop_outcome is not None:
            hear(self)

    @property
    def stop(self) -> asyncio.Event:
        """Set once the attempt must end."""
        if self._stop is None:
            self._stop = asyncio.Event()
            if self.stop_outcome is not None:
                self._stop.set()
        return self._stop

    @property
    def params(self) -> dict[str, Any]:
        """What was given, over the job's defaults."""
        given: dict[str, Any] = self.assignment.params or {}
        return defaults(self.definition.params) | given if self.definition.params else given

    @property
    def settings(self) -> dict[str, Any]:
        """Of a plug-in's task, with all values filled in; KeyError names a parameter that was not given."""
        task = self.definition.task
        assert isinstance(task, PluginTask)
        filled: dict[str, Any] = fill(task.settings, self.values())
        return filled

    def values(self) -> dict[str, Any]:
        """What templates may name."""
        return {
            "fire_at": self.fire_at,
            "execution_date": self.execution_date,
            "execution_id": str(self.assignment.execution_id),
            "attempt": self.assignment.attempt,
            "job": self.definition.name,
            "run_id": None,
            **{f"params.{name}": value for name, value in self.params.items()},
        }

    def context(self) -> dict[str, str]:
        """The environment every task gets: who it is, and the key that makes its effects repeatable."""
        execution_id = str(self.assignment.execution_id)
        return {
            "MAINSPRING_EXECUTION_ID": execution_id,
            "MAINSPRING_JOB": self.definition.name,
            "MAINSPRING_ATTEMPT": str(self.assignment.attempt),
            "MAINSPRING_FIRE_AT": self.fire_at,
            "MAINSPRING_IDEMPOTENCY_KEY": execution_id,
            MARK: str(self.session_id),
        }

    @property
    def fire_at(self) -> str:
        return self.assignment.fire_at.isoformat().replace("+00:00", "Z")

    @property
    def execution_date(self) -> str:
        """The day of the fire where the job's schedule lives."""
        zone = self.definition.timezone
        at = self.assignment.fire_at if zone is None else self.assignment.fire_at.astimezone(ZoneInfo(zone))
        return at.date().isoformat()


@dataclass(frozen=True, slots=True)
class Done:
    """How it ended."""

    outcome: Outcome
    exit_code: int | None = None
    error: str | None = None
    result: Any = None
    retry: bool = True  # false: another try would end the same way, whatever the job's policy


class Executor(Protocol):
    """Executes attempts of one kind. Must end soon after `work.stop` is set.

    One that another package adds may have `schema`, the JSON Schema of its task's settings: jobs are checked by it
    when they are saved, and attempts before they begin.
    """

    async def execute(self, work: Work) -> Done: ...


@runtime_checkable
class Direct(Protocol):
    """An executor that needs no task of the event loop for each attempt: `begin` returns at once, `finish` is
    called when the attempt has ended. What `begin` raises is an outcome, as with `execute`."""

    def begin(self, work: Work, finish: Callable[[Work, Done], None]) -> None: ...


@dataclass(frozen=True, slots=True)
class Host:
    """The worker, as far as executors need to know it."""

    slots: int
    children: Children
    modules: Sequence[str] = ()  # with functions for the `python` kind
    allow_net: Sequence[str] = ()  # networks that tasks may call besides the public ones
    engine: str | None = None  # the socket of a container engine
    pull: bool = True  # whether images may be fetched
    means: Means = field(default_factory=Means)  # what attempts can be held to here


@runtime_checkable
class Lasting(Protocol):
    """An executor that keeps something from attempt to attempt: started and stopped with its worker."""

    async def start(self, host: Host) -> None: ...
    async def stop(self) -> None: ...


async def start_all(executors: Mapping[str, Executor], host: Host) -> None:
    for executor in executors.values():
        if isinstance(executor, Lasting):
            await executor.start(host)


async def stop_all(executors: Mapping[str, Executor]) -> None:
    for executor in executors.values():
        if isinstance(executor, Lasting):
            await executor.stop()


def schemas_of(executors: Mapping[str, Executor]) -> dict[str, dict[str, Any]]:
    """What plug-ins say of the settings they take."""
    found = {kind: getattr(executor, "schema", {}) for kind, executor in executors.items() if kind not in OWN_KINDS}
    return {kind: schema for kind, schema in found.items() if schema}


def load_executors() -> dict[str, Executor]:
    """Every executor this installation has, by kind."""
    return {point.name: point.load()() for point in entry_points(group=GROUP)}
