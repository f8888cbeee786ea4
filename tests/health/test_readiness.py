"""Readiness names its reasons: stuck event loop, lagging wheel, unreachable database, lost api; each provoked."""

from __future__ import annotations

import asyncio
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mainspring.api.auth import issue_token
from mainspring.domain.grants import EVERYTHING
from mainspring.health.readiness import STUCK_S, Readiness
from mainspring.health.server import HealthServer
from mainspring.store.db import Database
from tests.support.health import Answer, get
from tests.support.processes import free_port, until
from tests.support.program import Program, program, server
from tests.support.tcp_proxy import proxy

pytestmark = pytest.mark.anyio


def health_options() -> tuple[int, tuple[str, str]]:
    port = free_port()
    return port, ("--health-port", str(port))


async def test_a_stuck_event_loop_is_reported_by_a_thread() -> None:
    readiness = Readiness()
    checked = HealthServer(readiness, host="127.0.0.1", port=0)
    await readiness.start()
    await checked.start()
    readiness.starting = False
    url = f"http://127.0.0.1:{checked.port}"

    def ask_while_stuck() -> tuple[Answer, Answer]:
        still = threading.Event()
        while readiness.stuck_s < STUCK_S + 0.1:
            still.wait(0.05)
        return get(f"{url}/readyz", 5), get(f"{url}/healthz", 5)

    try:
        assert (await asyncio.to_thread(get, f"{url}/readyz", 5)).status == 200
        assert (await asyncio.to_thread(get, f"{url}/nothing", 5)).status == 404
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(ask_while_stuck)
            stuck, alive = asked.result()  # blocks this event loop, on purpose
        assert stuck.status == 503
        assert stuck.body["checks"]["event_loop"].startswith("stuck: no turn for 2.")
        assert (alive.status, alive.body["status"]) == (200, "ok")
        await until("a turn", lambda: readiness.stuck_s < STUCK_S, within_s=5)
        assert (await asyncio.to_thread(get, f"{url}/readyz", 5)).status == 200
    finally:
        await checked.stop()
        await readiness.stop()


async def test_a_check_that_does_not_answer_is_a_reason() -> None:
    async def never() -> str | None:
        await asyncio.Event().wait()
        return None

    async def fine() -> str | None:
        return None

    readiness = Readiness()
    readiness.starting = False
    readiness.add("slow", never)
    readiness.add("fine", fine)
    health = await readiness.health()
    assert health.status == "unavailable"
    assert health.checks == {"event_loop": "ok", "slow": "no answer within 2 s", "fine": "ok"}


async def test_a_scheduler_reports_a_lagging_wheel_and_a_lost_database(
    tmp_path: Path, database_url: str, database: Database
) -> None:
    async with proxy(database_url) as between:
        port, options = health_options()
        running = server(tmp_path, between.url, *options, roles="scheduler")
        running.port = port
        try:
            await running.ready()
            assert set((await running.health()).body["checks"]) == {"event_loop", "database", "wheel"}
            async with database.transaction() as connection:
                await connection.execute("LOCK TABLE executions IN ACCESS EXCLUSIVE MODE")
                # The lock leaves the leases alone, but nothing can be decided.
                assert "lags: fires are decided up to" in await running.unready("wheel")
                answer = await running.health()
                assert (answer.body["status"], answer.body["checks"]["database"]) == ("unavailable", "ok")
                assert (await running.health("/healthz")).status == 200
            await running.ready()
            between.cut()
            assert "unreachable" in await running.unready("database")
            assert (await running.health("/healthz")).status == 200
            between.heal()
            await running.ready()
            assert await running.end() == 0, running.text
        finally:
            running.kill()


async def test_a_worker_that_lost_its_api_is_not_ready(tmp_path: Path, database_url: str, database: Database) -> None:
    async with database.connection() as connection:
        token = await issue_token(connection, tenant=1, name="w", scopes=("worker",), grants=EVERYTHING)
    api = server(tmp_path, database_url, roles="api")
    port, options = health_options()
    environment = {"MAINSPRING_TOKEN": token, "MAINSPRING_URL": f"http://127.0.0.1:{api.port}"}
    again: Program | None = None
    try:
        with program(tmp_path, "worker", *options, env=environment, port=port) as worker:
            assert "not registered" in await worker.unready("api")
            await worker.ready()
            await api.end(signal.SIGKILL)
            assert "connection to the api is lost" in await worker.unready("api")
            assert (await worker.health("/healthz")).status == 200
            words = ("serve", "--roles", "api", "--port", str(api.port))
            again = Program(tmp_path, *words, env={"MAINSPRING_DATABASE_URL": database_url}, port=api.port)
            await worker.ready()
    finally:
        api.kill()
        if again is not None:
            again.kill()
