"""Client errors: problem documents and connection failures as exceptions."""

from __future__ import annotations

import msgspec

from mainspring import wire
from mainspring.client.discovery import Server
from mainspring.domain import errors

# The inverse of the server's table; the document's `code` is more specific than the status.
_BY_STATUS: dict[int, type[errors.MainspringError]] = {
    400: errors.Invalid,
    401: errors.Unauthenticated,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    412: errors.Conflict,
    413: errors.TooLarge,
    422: errors.Invalid,
    429: errors.TooMany,
    503: errors.Unavailable,
}


class Unreachable(errors.Unavailable):
    """The server did not respond. A request that was sent may or may not have taken effect."""

    code = "unreachable"

    def __init__(self, server: Server, reason: str) -> None:
        super().__init__(f"no response from {server.url} (from {server.origin}): {reason}")
        self.server = server


class WaitTimedOut(errors.MainspringError, TimeoutError):
    """The execution was not final within the timeout; it continues."""

    code = "wait_timed_out"

    def __init__(self, execution: wire.Execution) -> None:
        super().__init__(f"execution {execution.execution_id} of {execution.job} is still {execution.state}")
        self.execution = execution


class ExecutionFailed(errors.MainspringError):
    """The execution ended in another state than succeeded; `execution` has all of it."""

    code = "execution_failed"

    def __init__(self, execution: wire.Execution) -> None:
        why = (execution.error or execution.reason or "").partition("\n")[0]
        ended = f"execution {execution.execution_id} of {execution.job} ended as {execution.state}"
        super().__init__(f"{ended}: {why}" if why else ended)
        self.execution = execution


class _Error(msgspec.Struct):
    pointer: str = ""
    message: str = ""
    hint: str = ""


class _Document(msgspec.Struct):
    """A problem document (RFC 9457) with two extension members, `code` and `errors`."""

    title: str = ""
    detail: str = ""
    code: str | None = None
    errors: list[_Error] = []


def problem(server: Server, status: int, content_type: str, body: bytes) -> errors.MainspringError:
    """Return the exception for a response other than 2xx. Its `str()` contains every problem."""
    try:
        if "json" not in content_type:
            raise msgspec.DecodeError
        document = msgspec.json.decode(body, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError):
        if status in (502, 503, 504):
            return Unreachable(server, f"a proxy responded with {status}")
        return unexpected_response(server, f"{status} without a problem document")
    problems = tuple(errors.Problem(e.pointer, e.message, e.hint) for e in document.errors)
    message = document.detail or document.title or f"the server responded with {status}"
    return _BY_STATUS.get(status, errors.MainspringError)(message, code=document.code, problems=problems)


def unexpected_response(server: Server, what: str) -> errors.MainspringError:
    """Return the error for a response that no Mainspring server of this version gives."""
    return errors.MainspringError(
        f"{server.url} (from {server.origin}) responded with {what}: is it a Mainspring server of this version?",
        code="bad_answer",
    )
