"""Liveness, readiness and metrics, for processes without the API.

Separate from the API so that a scheduler need not load it: it starts sooner and uses less memory.
"""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring import __version__, wire
from mainspring.api.auth import Authenticator
from mainspring.api.errors import guarded
from mainspring.codec import encode
from mainspring.store.db import AWAY, Database
from mainspring.store.migrate import schema_version


def build_status(database: Database, auth: Authenticator) -> Starlette:
    async def scrape(request: Request) -> Response:
        (await auth.caller(request)).demand("read")
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    async def metrics(request: Request) -> Response:
        return await guarded(lambda: scrape(request))

    return Starlette(routes=[*health(database), Route("/metrics", metrics, methods=["GET"])])


def health(database: Database) -> list[BaseRoute]:
    async def ready(_: Request) -> Response:
        return await guarded(lambda: readyz(database))

    return [Route("/healthz", healthz, methods=["GET"]), Route("/readyz", ready, methods=["GET"])]


async def healthz(_: Request) -> Response:
    """Liveness: the process responds."""
    return Response(encode({"status": "ok", "version": __version__}), media_type="application/json")


async def readyz(database: Database) -> Response:
    """Readiness: the database responds."""
    try:
        async with database.connection() as connection:
            version = await schema_version(connection)
    except AWAY as error:
        health = wire.Health(
            status="unavailable", version=__version__, schema_version=0, checks={"database": type(error).__name__}
        )
        return Response(encode(health), 503, {"Retry-After": "1"}, media_type="application/json")
    health = wire.Health(status="ok", version=__version__, schema_version=version, checks={"database": "ok"})
    return Response(encode(health), media_type="application/json")
