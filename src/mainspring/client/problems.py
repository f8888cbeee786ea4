"""What can go wrong between client and server, as errors of the domain."""

from __future__ import annotations

import msgspec

from mainspring import wire
from mainspring.client.discovery import Server
from mainspring.domain import errors

# The server's table of codes read backwards; `code` in the document says more than the status.
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
    """No server answered, so it is not known whether a request that was sent has been carried out."""

    code = "unreachable"

    def __init__(self, server: Server, reason: str) -> None:
        super().__init__(f"no answer from {server.url} (from {server.origin}): {reason}")
        self.server = server


class WaitTimedOut(errors.MainspringError):
    """The execution was not final within the time given; it goes on."""

    code = "wait_timed_out"

    def __init__(self, execution: wire.Execution) -> None:
        super().__init__(f"execution {execution.execution_id} of {execution.job} is still {execution.state}")
        self.execution = execution


class _Error(msgspec.Struct):
    pointer: str = ""
    message: str = ""
    hint: str = ""


class _Document(msgspec.Struct):
    """A problem document (RFC 9457) with our two members, `code` and `errors`."""

    title: str = ""
    detail: str = ""
    code: str | None = None
    errors: list[_Error] = []


def problem(server: Server, status: int, content_type: str, body: bytes) -> errors.MainspringError:
    """The error that an answer other than 2xx stands for."""
    try:
        if "json" not in content_type:
            raise msgspec.DecodeError
        document = msgspec.json.decode(body, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError):
        if status in (502, 503, 504):
            return Unreachable(server, f"a proxy answered {status}")
        return not_ours(server, f"{status} without a problem document")
    problems = tuple(errors.Problem(e.pointer, e.message, e.hint) for e in document.errors)
    message = document.detail or document.title or f"the server answered {status}"
    kind = _BY_STATUS.get(status, errors.MainspringError)
    return kind(message, code=document.code, problems=problems)


def not_ours(server: Server, answer: str) -> errors.MainspringError:
    """For an answer that no Mainspring server of this version gives."""
    return errors.MainspringError(
        f"{server.url} (from {server.origin}) answered {answer}: is it a Mainspring server of this version?",
        code="bad_answer",
    )
