"""The messages between a worker and its runner processes: JSON lines over a socket pair, never pickles.

A line to a runner is a list of messages, so that many calls cost one write. A runner sends one message per line. It
sends a result before it begins the next call: when it dies, of the unanswered calls only the first had begun.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from mainspring.domain.errors import Invalid

Stream = Literal["stdout", "stderr"]


class BadModule(Invalid):
    """A module can't be loaded, or declares an invalid job; the message begins with file and line.

    Raised in the process that loads the module, sent as text in `Loaded`, and raised again in the worker.
    """

    code = "bad_module"


class Call(msgspec.Struct, array_like=True, tag="call", gc=False):
    """Call a function. Ids and instants arrive as text. `once`: it must commit through `ms.transaction`."""

    number: int
    function: str
    args: dict[str, Any]
    execution_id: Any
    job: str
    attempt: int
    fire_at: Any
    session_id: Any
    once: bool = False
    checkpoint: Any = None
    inputs: str | None = None


class Cancel(msgspec.Struct, array_like=True, tag="cancel"):
    """Cancel an asynchronous call. Synchronous calls are ended by a signal."""

    number: int


class Recall(msgspec.Struct, array_like=True, tag="recall"):
    """Return every call that has not begun."""


WorkerMessage = Call | Cancel | Recall


class Loaded(msgspec.Struct, array_like=True, tag="loaded"):
    """The modules are loaded or, with `error`, could not be."""

    error: str | None = None


class DeclaredJob(msgspec.Struct, array_like=True, tag="declared_job"):
    """One job that the modules declare, with its file and line."""

    spec: msgspec.Raw
    location: str


class Returned(msgspec.Struct, array_like=True, tag="returned", gc=False):
    """A call has ended, with a result or an error."""

    number: int
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None
    retry: bool = True


class OutputWritten(msgspec.Struct, array_like=True, tag="output"):
    """A call has written to stdout or stderr."""

    number: int
    stream: Stream
    text: str


class ProgressMade(msgspec.Struct, array_like=True, tag="progress"):
    """A call has reported its progress."""

    number: int
    done: float
    total: float | None = None
    message: str | None = None


class CheckpointSaved(msgspec.Struct, array_like=True, tag="checkpoint"):
    """A call has saved where a further attempt continues."""

    number: int
    value: msgspec.Raw


class ArtifactFolder(msgspec.Struct, array_like=True, tag="artifacts"):
    """A call puts its artifacts into this folder."""

    number: int
    folder: str


class Concurrent(msgspec.Struct, array_like=True, tag="concurrent"):
    """The function is asynchronous: from now on this runner only takes asynchronous calls, several at once."""

    function: str


class Unstarted(msgspec.Struct, array_like=True, tag="unstarted"):
    """These calls are returned; they have not begun."""

    numbers: list[int]


RunnerMessage = (
    Loaded
    | DeclaredJob
    | Returned
    | OutputWritten
    | ProgressMade
    | CheckpointSaved
    | ArtifactFolder
    | Concurrent
    | Unstarted
)

encode = msgspec.json.Encoder().encode
decode_worker_messages = msgspec.json.Decoder(list[WorkerMessage]).decode
decode_runner_message = msgspec.json.Decoder(RunnerMessage).decode
