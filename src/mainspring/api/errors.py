"""Around every request: an error becomes a problem document, and none shows its inside."""

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
    """Every error becomes a problem document; none shows its inside."""
    try:
        return await work()
    except MainspringError as error:
        return problem_of(error)
    except CONFLICTS:
        return problem_of(Unavailable("two changes met; try again"))
    except ClientDisconnect:
        return Response(status_code=499)
    except AWAY as error:
        log.warning("the database is away", error=repr(error))
        return problem_of(Unavailable("the database is not available; nothing was written, try again"))
    except Exception:
        log.exception("a request failed")
        return problem(500, "error", "something went wrong on our side; the log has the details")
