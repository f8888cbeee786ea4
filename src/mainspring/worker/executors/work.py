"""One attempt as its executor sees it, and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from mainspring import wire
from mainspring.domain.container import ContainerTask
from mainspring.domain.execution import Outcome
from mainspring.domain.job import Definition, ShellTask, splicing_problems
from mainspring.domain.masking import Mask
from mainspring.domain.params import defaults
from mainspring.domain.plugin import PluginTask
from mainspring.domain.secret import PREFIX, whole_reference
from mainspring.domain.template import BoundedValues, TooMuchInserted, fill
from mainspring.domain.trace import attempt_span
from mainspring.worker.checkpoint import Checkpoint
from mainspring.worker.cleanup import CleanupRegistry
from mainspring.worker.guardian import SESSION_VARIABLE
from mainspring.worker.output import Output
from mainspring.worker.progress import Progress
from mainspring.worker.usage import Usage


@dataclass(frozen=True, slots=True)
class Done:
    """How an attempt ended."""

    outcome: Outcome
    exit_code: int | None = None
    error: str | None = None
    result: Any = None
    retry: bool = True  # false: a retry would end the same way, whatever the job's retry policy


def missing_parameter(error: KeyError) -> Done:
    """Return the failure of a task whose templates name a parameter that was not given."""
    if isinstance(error, TooMuchInserted):
        return Done("failed", error=str(error.args[0]), retry=False)
    return Done("failed", error=f"the parameter {error} was not given", retry=False)


def refuse_splicing(task: ShellTask | ContainerTask) -> Done | None:
    """Return the failure of a task with a template inside a script: jobs that were saved before it was refused."""
    for problem in splicing_problems(task):
        return Done("failed", error=f"{problem.pointer}: {problem.message}; {problem.hint}", retry=False)
    return None


class Work:
    """One attempt. Parts that only some kinds need are created on first use."""

    __slots__ = (
        "_on_stop", "_output", "_stop", "artifacts", "assignment", "checkpoint", "cleanup", "definition", "inputs",
        "mask", "pipeline", "progress", "secrets", "session_id", "started", "stop_outcome", "usage",
    )  # fmt: skip

    def __init__(
        self, assignment: wire.Assignment, definition: Definition, *, session_id: UUID, cleanup: CleanupRegistry
    ) -> None:
        self.assignment = assignment
        self.definition = definition
        self.session_id = session_id
        self.cleanup = cleanup
        self.stop_outcome: Outcome | None = None  # set: the attempt must end now, with this outcome
        self.started = 0.0  # on the monotonic clock
        self.progress: Progress | None = None
        self.usage: Usage | None = None  # of a program that has ended
        self.checkpoint: Checkpoint | None = None
        self.artifacts: Path | None = None  # a folder of files to upload; the worker removes it afterwards
        self.inputs: Path | None = None  # a folder with the files of `artifacts_in`; removed when the attempt ends
        self.secrets: dict[str, str] = {}  # values by name, from the api; in memory only
        self.mask: Mask | None = None  # of these values
        self.pipeline: Generator[Any, Any, None] | None = None  # of `worker/attempt.py`, while it awaits `begin`
        self._stop: asyncio.Event | None = None
        self._on_stop: Callable[[Work], None] | None = None
        self._output: Output | None = None

    @property
    def output(self) -> Output:
        if self._output is None:
            self._output = Output(self.assignment.execution_id, self.assignment.attempt, mask=self.mask)
        return self._output

    def take_output(self) -> list[wire.Output]:
        return self._output.take() if self._output is not None else []

    def finish_output(self) -> None:
        """Flush stdout and stderr; nothing is written to them afterwards."""
        if self._output is not None:
            self._output.finish("stdout")
            self._output.finish("stderr")

    def masked(self, done: Done) -> Done:
        """Return an end whose error and result contain no secret."""
        if self.mask is None:
            return done
        error = None if done.error is None else self.mask.text(done.error)
        return replace(done, error=error, result=self.mask.json(done.result))

    @property
    def last_checkpoint(self) -> Any:
        """The checkpoint of an earlier attempt, or None."""
        return None if self.checkpoint is None else self.checkpoint.last

    def request_stop(self, outcome: Outcome) -> None:
        """Ask the executor to end the attempt now."""
        self.stop_outcome = outcome
        if self._stop is not None:
            self._stop.set()
        if self._on_stop is not None:
            self._on_stop(self)

    def on_stop(self, callback: Callable[[Work], None]) -> None:
        """Call `callback` when the attempt must end; immediately if it already must."""
        self._on_stop = callback
        if self.stop_outcome is not None:
            callback(self)

    @property
    def stop(self) -> asyncio.Event:
        """Set once the attempt must end."""
        if self._stop is None:
            self._stop = asyncio.Event()
            if self.stop_outcome is not None:
                self._stop.set()
        return self._stop

    def stopped(self, outcome: Outcome, exit_code: int | None = None) -> Done:
        """Return the result of an attempt that had to end, because of its timeout or a request."""
        timed_out = f"timed out after {self.definition.timeout_s:g} s"
        return Done(outcome, exit_code, timed_out if outcome == "timed_out" else outcome)

    @property
    def params(self) -> dict[str, Any]:
        """The execution's parameters over the job's defaults."""
        given: dict[str, Any] = self.assignment.params or {}
        declared = self.definition.params
        if not declared:
            return given
        found = defaults(declared) | given
        if self.definition.secrets:
            for name, value in found.items():
                if name in declared and declared[name].secret:
                    found[name] = self.secrets.get(whole_reference(str(value)) or "", value)
        return found

    @property
    def settings(self) -> dict[str, Any]:
        """A plug-in task's settings with templates filled in; KeyError names a missing parameter."""
        task = self.definition.task
        assert isinstance(task, PluginTask)
        filled: dict[str, Any] = fill(task.settings, self.values())
        return filled

    def values(self) -> BoundedValues:
        """The values that templates may name."""
        known = {
            "fire_at": self.fire_at,
            "execution_date": self.execution_date,
            "execution_id": str(self.assignment.execution_id),
            "attempt": self.assignment.attempt,
            "job": self.definition.name,
            "run_id": None,
            **{f"params.{name}": value for name, value in self.params.items()},
            **{f"{PREFIX}{name}": value for name, value in self.secrets.items()},
        }
        return BoundedValues(known)

    def context(self) -> dict[str, str]:
        """The environment variables of every task: its identity and its idempotency key."""
        execution_id = str(self.assignment.execution_id)
        return {
            "MAINSPRING_EXECUTION_ID": execution_id,
            "MAINSPRING_JOB": self.definition.name,
            "MAINSPRING_ATTEMPT": str(self.assignment.attempt),
            "MAINSPRING_FIRE_AT": self.fire_at,
            "MAINSPRING_IDEMPOTENCY_KEY": execution_id,
            "TRACEPARENT": self.traceparent,
            SESSION_VARIABLE: str(self.session_id),
        }

    def marks(self) -> tuple[str, ...]:
        """Entries of `context` that only processes of this attempt have."""
        given = self.assignment
        return (f"MAINSPRING_EXECUTION_ID={given.execution_id}", f"MAINSPRING_ATTEMPT={given.attempt}")

    @property
    def traceparent(self) -> str:
        """The W3C trace context of the attempt."""
        return str(attempt_span(self.assignment.execution_id, self.assignment.attempt))

    @property
    def fire_at(self) -> str:
        return self.assignment.fire_at.isoformat().replace("+00:00", "Z")

    @property
    def execution_date(self) -> str:
        """The day of the fire in the schedule's time zone."""
        zone = self.definition.timezone
        at = self.assignment.fire_at if zone is None else self.assignment.fire_at.astimezone(ZoneInfo(zone))
        return at.date().isoformat()
