"""The context of an execution, for functions in a runner and programs of shell tasks."""

from __future__ import annotations

import os
import shutil
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol
from uuid import UUID

import msgspec

from mainspring.domain.artifact import name_problem
from mainspring.domain.trace import attempt_span

CHECKPOINT_VARIABLE = "MAINSPRING_CHECKPOINT"
"""Programs of shell tasks read and write their checkpoint in the file that this variable names."""
ARTIFACTS_VARIABLE = "MAINSPRING_ARTIFACTS"
"""Programs of shell tasks put their artifacts into the folder that this variable names."""
INPUTS_VARIABLE = "MAINSPRING_INPUTS"
"""Programs of shell tasks find the files of `artifacts_in` in the folder that this variable names."""
MAX_CHECKPOINT_BYTES = 64_000


class NotExecuting(RuntimeError):
    """`context()` was called outside an execution."""


@dataclass(frozen=True, slots=True)
class Context:
    """The execution that runs this code.

    `idempotency_key` is the same for all attempts of an execution, so a receiver can detect repeated calls. `attempt`
    only grows, so it can fence off earlier attempts.
    """

    execution_id: str
    job: str
    attempt: int
    fire_at: datetime
    idempotency_key: str

    @property
    def traceparent(self) -> str:
        """The W3C trace context of this attempt, for the header `traceparent` of requests."""
        return str(attempt_span(UUID(self.execution_id), self.attempt))

    def checkpoint(self, value: Any) -> None:
        """Save where a further attempt continues, as JSON of at most 64,000 bytes; the last value counts.

        It is sent within a second, and when the attempt ends. A worker that dies may lose the last one.
        """
        data = msgspec.json.encode(value)
        if len(data) > MAX_CHECKPOINT_BYTES:
            raise ValueError(f"the checkpoint has {len(data):,} bytes; the limit is {MAX_CHECKPOINT_BYTES:,}")
        if (call := current.get()) is not None:
            call.save_checkpoint(data)
        elif path := os.environ.get(CHECKPOINT_VARIABLE):
            # Replaced atomically: the worker may read it at any moment.
            with open(f"{path}.new", "wb") as file:
                file.write(data)
            os.replace(f"{path}.new", path)

    @property
    def last_checkpoint(self) -> Any:
        """The last value that an earlier attempt passed to `checkpoint`, or None."""
        if (call := current.get()) is not None:
            return call.last_checkpoint
        try:
            with open(os.environ[CHECKPOINT_VARIABLE], "rb") as file:
                return msgspec.json.decode(file.read())
        except (KeyError, OSError, msgspec.DecodeError):
            return None

    def artifact(self, name: str, content: bytes | str | os.PathLike[str]) -> None:
        """Store a file with the execution under a name such as `report/2026.csv`: bytes, text, or a path to copy.

        It is uploaded when the attempt ends. The same name replaces it, also in a further attempt.
        """
        if (problem := name_problem(name)) is not None:
            raise ValueError(problem)
        call = current.get()
        folder = os.environ.get(ARTIFACTS_VARIABLE) if call is None else call.artifact_folder()
        if folder is None:
            raise NotExecuting(f"cannot store an artifact outside an execution: {ARTIFACTS_VARIABLE} is not set")
        target = os.path.join(folder, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if isinstance(content, os.PathLike):
            shutil.copyfile(content, target)
            return
        with open(target, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)

    def input(self, name: str) -> Path:
        """Return the path of a file from the job's `artifacts_in`, by its local name."""
        call = current.get()
        folder = os.environ.get(INPUTS_VARIABLE) if call is None else call.inputs
        path = None if folder is None or name_problem(name) is not None else Path(folder, name)
        if path is None or not path.is_file():
            raise FileNotFoundError(f"{name!r} is not among the job's artifacts_in")
        return path


class CurrentCall(Protocol):
    """The call that is running, as the runner provides it."""

    @property
    def execution_id(self) -> str: ...
    @property
    def job(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def fire_at(self) -> str: ...

    committed: bool  # whether `ms.transaction` has committed its effects

    def report_progress(self, done: float, total: float | None, message: str | None) -> None: ...
    def write(self, stream: Literal["stdout", "stderr"], text: str, *, flush: bool) -> None: ...
    def flush(self) -> None: ...
    def save_checkpoint(self, value: bytes) -> None: ...
    def artifact_folder(self) -> str: ...

    @property
    def last_checkpoint(self) -> Any: ...
    @property
    def inputs(self) -> str | None: ...


current: ContextVar[CurrentCall | None] = ContextVar("mainspring_executing", default=None)


def context() -> Context:
    """Return the execution that runs this code; raise `NotExecuting` outside of one."""
    if (call := current.get()) is not None:
        return _context(call.execution_id, call.job, str(call.attempt), call.fire_at)
    names = ("EXECUTION_ID", "JOB", "ATTEMPT", "FIRE_AT")
    values = [os.environ.get(f"MAINSPRING_{name}") for name in names]
    if not all(values):
        raise NotExecuting(
            "not called by Mainspring: there is no execution, so there is no context; "
            "in a test, call the function inside `with ms.fake_execution():`"
        )
    return _context(*(value or "" for value in values))


def _context(execution_id: str, job: str, attempt: str, fire_at: str) -> Context:
    at = datetime.fromisoformat(fire_at.replace("Z", "+00:00"))
    return Context(execution_id, job, int(attempt), at, idempotency_key=execution_id)
