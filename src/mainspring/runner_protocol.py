"""The messages between a worker and its runner processes: JSON lines over socket pairs, never pickles.

A line to a runner is a list of groups of calls, so that many cost one write. `Cancel` and `Recall` have a socket of
their own, which a runner reads while it makes a call. A runner puts each result into memory that it shares with its
worker before it begins the next call, and sends several in one write (`runner_memory.py`). When it dies, its worker
has every result and knows which call had begun.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from mainspring.domain.errors import Invalid

Stream = Literal["stdout", "stderr"]


class BadModule(Invalid):
    """A module can't be loaded, or declares an invalid job; the message begins with file and line.

    Raised in the process that loads the module, sent as text in `Loaded`, and raised again in the worker.
    """

    code = "bad_module"


class Call(msgspec.Struct, array_like=True, gc=False):
    """One call of a group. Ids and instants arrive as text."""

    execution_id: Any
    attempt: int
    fire_at: Any
    args: dict[str, Any] | None = None
    checkpoint: Any = None
    inputs: str | None = None


class CallGroup(msgspec.Struct, array_like=True, gc=False):
    """Calls of a function for one job, numbered from `first`. `once`: each must commit through `ms.transaction`."""

    first: int
    function: str
    job: str
    session_id: Any
    once: bool
    calls: list[Call]


class Cancel(msgspec.Struct, array_like=True, tag="cancel"):
    """Cancel an asynchronous call. Synchronous calls are ended by a signal."""

    number: int


class Recall(msgspec.Struct, array_like=True, tag="recall"):
    """Return every call up to number `last` that has not begun."""

    last: int


ControlMessage = Cancel | Recall


class Loaded(msgspec.Struct, array_like=True, tag="loaded"):
    """The modules are loaded or, with `error`, could not be."""

    error: str | None = None


class DeclaredJob(msgspec.Struct, array_like=True, tag="declared_job"):
    """One job that the modules declare, with its file and line."""

    spec: msgspec.Raw
    location: str


class StatedFunctions(msgspec.Struct, array_like=True, tag="functions"):
    """The functions that can be called, as entries of `wire.StateFunctions`, and the versions of the modules."""

    functions: list[str]
    modules: dict[str, str]


class Returned(msgspec.Struct, array_like=True, tag="returned", gc=False):
    """A call has ended, with a result or an error. `exits`: the runner had to end it, and begins no further call."""

    number: int
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None
    retry: bool = True
    exits: bool = False


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
    """A call puts artifacts into the folder of its number, below the folder that the worker gave to the runner."""

    number: int


class Concurrent(msgspec.Struct, array_like=True, tag="concurrent"):
    """The function is asynchronous: from now on this runner only takes asynchronous calls, several at once."""

    function: str


class Unstarted(msgspec.Struct, array_like=True, tag="unstarted"):
    """These calls are returned; they have not begun."""

    numbers: list[int]


RunnerMessage = (
    Loaded
    | DeclaredJob
    | StatedFunctions
    | Returned
    | OutputWritten
    | ProgressMade
    | CheckpointSaved
    | ArtifactFolder
    | Concurrent
    | Unstarted
)

encode = msgspec.json.Encoder().encode
decode_call_groups = msgspec.json.Decoder(list[CallGroup]).decode
decode_control_message: Callable[[bytes], ControlMessage] = msgspec.json.Decoder(ControlMessage).decode
decode_runner_messages: Callable[[bytes], list[RunnerMessage]] = msgspec.json.Decoder(RunnerMessage).decode_lines
