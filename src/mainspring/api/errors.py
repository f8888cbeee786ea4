"""Error handling around every request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from mainspring.api.problem import problem_of
from mainspring.domain.errors import MainspringError, Unavailable, invalid
from mainspring.domain.schedule.budget import TooCostly
from mainspring.domain.schedule.schedule import too_costly
from mainspring.store.db import AWAY, CONFLICTS

log = structlog.get_logger()


async def guarded(work: Callable[[], Awaitable[Response]]) -> Response:
    """Turn every error into a problem document that reveals no internals."""
    try:
        return await work()
    except ClientDisconnect:
        return Response(status_code=499)
    except Exception as error:
        return problem_of(public_error(error))


def public_error(error: Exception) -> MainspringError:
    """Return the error that a caller may see. Logs what is not the caller's fault."""
    if isinstance(error, MainspringError):
        return error
    if isinstance(error, TooCostly):
        problem = too_costly(error, "/schedule")
        return invalid(problem.pointer, problem.message, hint=problem.hint, code=problem.code)
    if isinstance(error, CONFLICTS):
        return Unavailable("concurrent changes conflicted; nothing was written, try again")
    if isinstance(error, AWAY):
        log.warning("database.unavailable", error=repr(error))
        return Unavailable("the database is unavailable; nothing was written, try again")
    log.error("request.failed", exc_info=error)
    return MainspringError("internal error; the server log has the details", code="error")
