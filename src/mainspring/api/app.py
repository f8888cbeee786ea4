"""The HTTP application: API, worker protocol and pages under one roof."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from mainspring.api import (
    alerts,
    artifacts,
    audit,
    backfills,
    blackouts,
    calendars,
    dead_letters,
    executions,
    jobs,
    openapi,
    queues,
    reservations,
    runs,
    system,
    workers,
    workflows,
)
from mainspring.api.context import Context
from mainspring.api.problem import problem
from mainspring.api.route import Call, Endpoint, Table, routes
from mainspring.api.status import health
from mainspring.codec import encode

docs = Table()

Lost = Callable[[Context, Request, int, str], Awaitable[Response]]
"""Answers a browser that asked for what is not there, with a status and a sentence."""


def endpoints() -> list[Endpoint]:
    """The whole table, in order."""
    tables = (
        jobs.table, backfills.table, calendars.table, blackouts.table, executions.table, dead_letters.table,
        queues.table, reservations.table, workers.table, artifacts.table, workflows.table, runs.table, alerts.table,
        audit.table,
        system.table, docs,
    )  # fmt: skip
    return [endpoint for table in tables for endpoint in table.endpoints]


@docs.route("GET", "/api/openapi.json", scope="read")
async def openapi_document(_: Call) -> Response:
    """This API as an OpenAPI 3.1 document."""
    return Response(encode(openapi.document(endpoints())), media_type="application/json")


def build(
    context: Context, *, pages: Callable[[Context], Sequence[BaseRoute]] | None = None, lost: Lost | None = None
) -> Starlette:
    """The application; `pages` adds the web UI, `lost` its page for what is not there."""

    table: list[BaseRoute] = [
        *health(context.database),
        *routes(endpoints(), context),
        *(pages(context) if pages is not None else ()),
    ]

    async def nothing_there(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code, detail = _MISSING.get(error.status_code, ("error", error.detail))
        if lost is not None and "text/html" in request.headers.get("accept", ""):
            answer = await lost(context, request, error.status_code, detail)
        else:
            answer = problem(error.status_code, code, detail)
        answer.headers.update(error.headers or {})
        return answer

    return Starlette(routes=table, exception_handlers={HTTPException: nothing_there})


_MISSING = {
    404: ("not_found", "there is nothing at this path"),
    405: ("method_not_allowed", "this path does not take that method"),
}
