"""The answers to calls: a value, a result that an earlier attempt stored, or an error."""

from __future__ import annotations

import sys
import traceback
from typing import Any

import msgspec

from mainspring import runner_protocol as protocol
from mainspring.sdk.transaction import AlreadyDone

MAX_RESULT_BYTES = 262_144
MAX_ERROR_CHARS = 9_000
_CALLERS = tuple(f"mainspring.{name}" for name in ("runner.serve", "runner.functions", "testing.functions"))


def stored_value(number: int, done: AlreadyDone) -> protocol.Returned:
    """Return the result that an earlier attempt stored."""
    return protocol.Returned(number, msgspec.Raw((done.stored or "null").encode()))


def returned_value(number: int, value: Any, *, once: bool, committed: bool) -> protocol.Returned:
    """Return what the function returned, as JSON. `once`: its job is effectively_once."""
    if once and not committed:
        return protocol.Returned(
            number,
            retry=False,
            error="the job is effectively_once, but the function did not commit through ms.transaction:"
            " put its effects into `with ms.transaction(connection)`, or make the job at_least_once",
        )
    if value is None:
        return protocol.Returned(number)
    try:
        result = protocol.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return protocol.Returned(
            number,
            retry=False,
            error=f"the result is not JSON: {error}; return numbers, text, lists, dictionaries or None",
        )
    if len(result) > MAX_RESULT_BYTES:
        return protocol.Returned(
            number,
            retry=False,
            error=f"the result has {len(result):,} bytes; the limit is {MAX_RESULT_BYTES:,}:"
            " store it elsewhere and return its location",
        )
    return protocol.Returned(number, msgspec.Raw(result))


def failure(number: int, error: BaseException) -> protocol.Returned:
    """Return the error in one line, then the traceback without the frames of the caller."""
    callers = {module.__file__ for name in _CALLERS if (module := sys.modules.get(name)) is not None}
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in callers:
        trace = trace.tb_next
    head = "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, SystemExit):
        head = f"the function ended its process: {head}"
    tail = "".join(traceback.format_exception(type(error), error, trace))
    text = f"{head}\n\n{tail}"
    if len(text) > MAX_ERROR_CHARS:
        text = f"{text[:2000]}\n…\n{text[-(MAX_ERROR_CHARS - 2000) :]}"
    return protocol.Returned(number, error=text.replace("\0", "\ufffd"))
