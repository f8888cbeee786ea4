"""Health and metrics of a process without the API."""

from __future__ import annotations

import httpx2
import pytest

from mainspring.api.auth import issue_token
from mainspring.cli.serve import Server
from mainspring.config import ServeConfig

pytestmark = pytest.mark.anyio


async def test_a_scheduler_alone_shows_its_health_and_its_metrics(database_url: str) -> None:
    server = Server(ServeConfig(database_url=database_url, roles=("scheduler",), port=0))
    await server.start()
    try:
        assert server.http is not None
        async with server.database.connection() as connection:
            token = await issue_token(connection, tenant=1, name="scraper", scopes=("read",))
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.http.port}") as asking:
            assert (await asking.get("/healthz")).json()["status"] == "ok"
            assert (await asking.get("/readyz")).json()["checks"] == {
                "event_loop": "ok",
                "database": "ok",
                "wheel": "ok",
            }
            assert (await asking.get("/metrics")).status_code == 401
            shown = await asking.get("/metrics", headers={"Authorization": f"Bearer {token}"})
            assert shown.status_code == 200 and "mainspring_scheduler" in shown.text
            assert (await asking.get("/api/v1/jobs")).status_code == 404
    finally:
        await server.stop()


async def test_without_a_port_it_serves_nothing(database_url: str) -> None:
    assert Server(ServeConfig(database_url=database_url, roles=("scheduler",))).http is None
