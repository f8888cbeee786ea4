"""Liveness, readiness and metrics, for processes without the API.

Separate from the API so that a scheduler need not load it: it starts sooner and uses less memory.
"""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from mainspring import __version__
from mainspring.api.auth import Authenticator
from mainspring.api.errors import guarded
from mainspring.api.metrics import channels_of, exposition
from mainspring.api.safe_headers import SafeHeaders
from mainspring.codec import encode
from mainspring.health.readiness import Readiness
from mainspring.store import holds
from mainspring.store.db import AWAY, Database
from mainspring.store.migrate import schema_version


def build_status(database: Database, auth: Authenticator, readiness: Readiness) -> ASGIApp:
    async def scrape(request: Request) -> Response:
        caller = await auth.caller(request)
        caller.demand("read")
        async with database.connection() as connection:
            return exposition(await channels_of(connection, tenant=caller.visible_tenant))

    async def metrics(request: Request) -> Response:
        return await guarded(lambda: scrape(request))

    return SafeHeaders(Starlette(routes=[*health(readiness), Route("/metrics", metrics, methods=["GET"])]))


def health(readiness: Readiness) -> list[BaseRoute]:
    async def ready(_: Request) -> Response:
        return await guarded(lambda: readyz(readiness))

    return [Route("/healthz", healthz, methods=["GET"]), Route("/readyz", ready, methods=["GET"])]


async def healthz(_: Request) -> Response:
    """Liveness: the process responds."""
    return Response(encode({"status": "ok", "version": __version__}), media_type="application/json")


async def readyz(readiness: Readiness) -> Response:
    """Readiness: every check of the process holds."""
    health = await readiness.health()
    if health.status != "ok":
        return Response(encode(health), 503, {"Retry-After": "1"}, media_type="application/json")
    return Response(encode(health), media_type="application/json")


def add_database_check(readiness: Readiness, database: Database) -> None:
    """The database answers; also remembers its schema version."""

    async def check() -> str | None:
        try:
            async with database.connection() as connection:
                readiness.schema_version = await schema_version(connection)
                hold = await holds.open_hold(connection)
                readiness.notes = [] if hold is None else [str(hold)]
        except AWAY as error:
            return f"unreachable: {type(error).__name__}"
        return None

    readiness.add("database", check)
