"""Who is being executed: for functions in a runner, and for programs that a shell task started."""

from __future__ import annotations

import os
import shutil
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from mainspring.domain.artifact import name_problem

FILE = "MAINSPRING_CHECKPOINT"
"""For programs that a shell task started: where they read and write it."""
ARTIFACTS = "MAINSPRING_ARTIFACTS"
"""For programs that a shell task started: the folder into which they put files to be kept."""
INPUTS = "MAINSPRING_INPUTS"
"""For programs that a shell task started: the folder with files of earlier executions."""
MOST_CHECKPOINT = 64_000


class NotExecuting(RuntimeError):
    """`context()` was asked for outside an execution."""


@dataclass(frozen=True, slots=True)
class Context:
    """The execution that runs this code.

    `idempotency_key` is the same for all attempts of an execution: whoever is called with it can tell a
    repetition. `attempt` only grows, so it fences an earlier attempt off.
    """

    execution_id: str
    job: str
    attempt: int
    fire_at: datetime
    idempotency_key: str

    def checkpoint(self, value: Any) -> None:
        """Remembers where a further attempt would go on, as JSON of at most 64,000 bytes; the last word counts.

        It is sent within a second, and at once when the attempt ends: a worker that dies may lose the very last one.
        """
        data = msgspec.json.encode(value)
        if len(data) > MOST_CHECKPOINT:
            raise ValueError(f"a checkpoint has at most {MOST_CHECKPOINT:,} bytes, and this has {len(data):,}")
        if (executing := current.get()) is not None:
            executing.save(data)
        elif path := os.environ.get(FILE):
            # Whole or not at all: it may be read at any moment.
            with open(f"{path}.new", "wb") as file:
                file.write(data)
            os.replace(f"{path}.new", path)

    @property
    def last_checkpoint(self) -> Any:
        """What an earlier attempt said last with `checkpoint`; None at the first attempt, or if it said nothing."""
        if (executing := current.get()) is not None:
            return executing.last_checkpoint
        try:
            with open(os.environ[FILE], "rb") as file:
                return msgspec.json.decode(file.read())
        except (KeyError, OSError, msgspec.DecodeError):
            return None

    def artifact(self, name: str, content: bytes | str | os.PathLike[str]) -> None:
        """Keeps a file with the execution under a name such as `report/2026.csv`: bytes, text, or a path to copy.

        It is sent when the attempt ends. The same name again replaces it, also in a further attempt.
        """
        if (wrong := name_problem(name)) is not None:
            raise ValueError(wrong)
        executing = current.get()
        folder = os.environ.get(ARTIFACTS) if executing is None else executing.folder()
        if folder is None:
            raise NotExecuting(f"{ARTIFACTS} is not set, so nobody would keep the file")
        target = os.path.join(folder, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if isinstance(content, os.PathLike):
            shutil.copyfile(content, target)
            return
        with open(target, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)

    def input(self, name: str) -> Path:
        """The path of a file that the job asked for with `artifacts_in`, by its name here."""
        executing = current.get()
        folder = os.environ.get(INPUTS) if executing is None else executing.inputs
        path = None if folder is None or name_problem(name) is not None else Path(folder, name)
        if path is None or not path.is_file():
            raise FileNotFoundError(f"{name!r} is not among the job's artifacts_in")
        return path


class Executing(Protocol):
    """What a runner provides for one call."""

    @property
    def execution_id(self) -> str: ...
    @property
    def job(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def fire_at(self) -> str: ...

    committed: bool  # its effects were committed through `ms.transaction`

    def tell(self, done: float, total: float | None, message: str | None) -> None: ...
    def write(self, stream: Literal["stdout", "stderr"], text: str, *, flush: bool) -> None: ...
    def flush(self) -> None: ...
    def save(self, value: bytes) -> None: ...
    def folder(self) -> str: ...

    @property
    def last_checkpoint(self) -> Any: ...
    @property
    def inputs(self) -> str | None: ...


current: ContextVar[Executing | None] = ContextVar("mainspring_executing", default=None)


def context() -> Context:
    """The execution this code runs in; raises `NotExecuting` where there is none."""
    if (executing := current.get()) is not None:
        return _context(executing.execution_id, executing.job, str(executing.attempt), executing.fire_at)
    names = ("EXECUTION_ID", "JOB", "ATTEMPT", "FIRE_AT")
    values = [os.environ.get(f"MAINSPRING_{name}") for name in names]
    if not all(values):
        raise NotExecuting("this code is not executed by Mainspring, so there is no context")
    return _context(*(value or "" for value in values))


def _context(execution_id: str, job: str, attempt: str, fire_at: str) -> Context:
    at = datetime.fromisoformat(fire_at.replace("Z", "+00:00"))
    return Context(execution_id, job, int(attempt), at, idempotency_key=execution_id)
