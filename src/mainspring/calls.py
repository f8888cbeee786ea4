"""What a worker and its runner processes say to each other: JSON lines over a socket pair, never pickles.

A line to a runner is a list of messages, so that many calls cost one write. A runner answers line by line; it
sends a result before it begins the next call, so whatever was not answered when it died had not begun, except the
first.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Stream = Literal["stdout", "stderr"]


class Call(msgspec.Struct, array_like=True, tag="call", gc=False):
    """Call a function. Id and instant travel as text. `once`: it must commit through `ms.transaction`."""

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
    """Cancel an asynchronous call. Others are ended by a signal."""

    number: int


class Recall(msgspec.Struct, array_like=True, tag="recall"):
    """Give back every call that has not begun."""


Order = Call | Cancel | Recall


class Hello(msgspec.Struct, array_like=True, tag="hello"):
    """The modules are loaded, or could not be: `error` says file and line."""

    error: str | None = None


class Declares(msgspec.Struct, array_like=True, tag="declares"):
    """One job that the modules declare, and where."""

    spec: msgspec.Raw
    place: str


class Returned(msgspec.Struct, array_like=True, tag="returned", gc=False):
    """How a call ended: with a result, or an error."""

    number: int
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None
    retry: bool = True


class Wrote(msgspec.Struct, array_like=True, tag="wrote"):
    number: int
    stream: Stream
    text: str


class Told(msgspec.Struct, array_like=True, tag="told"):
    """Progress of a call."""

    number: int
    done: float
    total: float | None = None
    message: str | None = None


class Saved(msgspec.Struct, array_like=True, tag="saved"):
    """Where a call would go on."""

    number: int
    value: msgspec.Raw


class Files(msgspec.Struct, array_like=True, tag="files"):
    """The folder into which a call puts files to be kept."""

    number: int
    folder: str


class Concurrent(msgspec.Struct, array_like=True, tag="concurrent"):
    """The function is asynchronous: from now on this runner takes several of the kind at once, and no others."""

    function: str


class Unstarted(msgspec.Struct, array_like=True, tag="unstarted"):
    """Given back."""

    numbers: list[int]


Word = Hello | Declares | Returned | Wrote | Told | Saved | Files | Concurrent | Unstarted

encode = msgspec.json.Encoder().encode
read_orders = msgspec.json.Decoder(list[Order]).decode
read_word = msgspec.json.Decoder(Word).decode
