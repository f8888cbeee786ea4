"""The HTTP application: API, worker protocol and web UI."""

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
    browser_sessions,
    calendars,
    costs,
    dead_letters,
    duration_requests,
    executions,
    forecast,
    hooks,
    jobs,
    manifests,
    openapi,
    queues,
    reservations,
    runs,
    secrets,
    system,
    tenants,
    tokens,
    triggers,
    users,
    worker_stream,
    worker_tokens,
    workers,
    workflows,
)
from mainspring.api.context import Context
from mainspring.api.problem import problem
from mainspring.api.route import Call, Endpoint, Table, routes
from mainspring.api.status import health
from mainspring.codec import encode

docs = Table()

ErrorPage = Callable[[Context, Request, int, str], Awaitable[Response]]
"""Renders an HTML error page from a status and a message."""


def endpoints() -> list[Endpoint]:
    """Every endpoint, in the order of matching."""
    tables = (
        jobs.table, backfills.table, calendars.table, blackouts.table, executions.table, dead_letters.table,
        queues.table, costs.table, forecast.table, reservations.table, duration_requests.table, workers.table,
        worker_stream.table, worker_tokens.table, artifacts.table, workflows.table, manifests.table, runs.table,
        alerts.table, triggers.table, audit.table, secrets.table, browser_sessions.table, tokens.table, users.table,
        tenants.table, system.table, docs,
    )  # fmt: skip
    return [endpoint for table in tables for endpoint in table.endpoints]


@docs.route("GET", "/api/openapi.json", scope="read")
async def openapi_document(_: Call) -> Response:
    """Get the OpenAPI 3.1 document of this API."""
    return Response(encode(openapi.document(endpoints())), media_type="application/json")


def build(
    context: Context,
    *,
    pages: Callable[[Context], Sequence[BaseRoute]] | None = None,
    error_page: ErrorPage | None = None,
) -> Starlette:
    """Build the application. `pages` adds the web UI; `error_page` shows browsers an unknown path or method."""

    table: list[BaseRoute] = [
        *health(context.readiness),
        *routes(endpoints(), context),
        *hooks.routes(context),
        *(pages(context) if pages is not None else ()),
    ]

    async def no_route(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code, detail = _NO_ROUTE.get(error.status_code, ("error", error.detail))
        if error_page is not None and "text/html" in request.headers.get("accept", ""):
            response = await error_page(context, request, error.status_code, detail)
        else:
            response = problem(error.status_code, code, detail)
        response.headers.update(error.headers or {})
        return response

    return Starlette(routes=table, exception_handlers={HTTPException: no_route})


_NO_ROUTE = {
    404: ("not_found", "no route at this path"),
    405: ("method_not_allowed", "method not allowed on this path"),
}
