"""The HTTP application: API, worker protocol and pages under one roof."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring.api import executions, jobs, openapi, queues, system, workers
from mainspring.api.context import Context
from mainspring.api.problem import problem
from mainspring.api.route import Call, Endpoint, Table, guarded, routes
from mainspring.codec import encode

docs = Table()


def endpoints() -> list[Endpoint]:
    """The whole table, in order."""
    tables = (jobs.table, executions.table, queues.table, workers.table, system.table, docs)
    return [endpoint for table in tables for endpoint in table.endpoints]


@docs.route("GET", "/api/openapi.json", scope="read")
async def openapi_document(_: Call) -> Response:
    """This API as an OpenAPI 3.1 document."""
    return Response(encode(openapi.document(endpoints())), media_type="application/json")


def build(context: Context, *, pages: Callable[[Context], Sequence[BaseRoute]] | None = None) -> Starlette:
    """The application; `pages` adds the web UI."""

    async def readyz(_: Request) -> Response:
        return await guarded(lambda: system.readyz(context))

    table: list[BaseRoute] = [
        Route("/healthz", system.healthz, methods=["GET"]),
        Route("/readyz", readyz, methods=["GET"]),
        *routes(endpoints(), context),
        *(pages(context) if pages is not None else ()),
    ]
    return Starlette(routes=table, exception_handlers={HTTPException: _http_error})


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "error")
    detail = {404: "there is nothing at this path", 405: "this path does not take that method"}
    answer = problem(error.status_code, code, detail.get(error.status_code, error.detail))
    answer.headers.update(error.headers or {})
    return answer
