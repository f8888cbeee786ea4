"""Error handling around every request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from mainspring.api.problem import problem, problem_of
from mainspring.domain.errors import MainspringError, Unavailable
from mainspring.store.db import AWAY, CONFLICTS

log = structlog.get_logger()


async def guarded(work: Callable[[], Awaitable[Response]]) -> Response:
    """Turn every error into a problem document that reveals no internals."""
    try:
        return await work()
    except MainspringError as error:
        return problem_of(error)
    except CONFLICTS:
        return problem_of(Unavailable("concurrent changes conflicted; nothing was written, try again"))
    except ClientDisconnect:
        return Response(status_code=499)
    except AWAY as error:
        log.warning("database.unavailable", error=repr(error))
        return problem_of(Unavailable("the database is unavailable; nothing was written, try again"))
    except Exception:
        log.exception("request.failed")
        return problem(500, "error", "internal error; the server log has the details")
