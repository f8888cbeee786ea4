"""The api and PostgreSQL go away while attempts run, and their worker is restarted: Kafka has the results."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from mainspring import wire
from mainspring.api.auth import issue_token
from mainspring.client import AsyncClient
from mainspring.domain.grants import EVERYTHING
from mainspring.embedded.server import EmbeddedServer
from mainspring.store.db import Database
from mainspring.store.migrate import migrate
from tests.support import worker_program
from tests.support.engine_servers import KafkaServer
from tests.support.fleet import ROUNDS
from tests.support.processes import until, until_async
from tests.support.program import Program, server

pytestmark = [pytest.mark.fault, pytest.mark.anyio]

EXECUTIONS = 30
LEASE_S = 8.0 if ROUNDS == 1 else 20.0
OUTAGE_S = 10.0 if ROUNDS == 1 else 60.0
WAITS = "while [ ! -e {go} ]; do sleep 0.05; done; echo $MAINSPRING_EXECUTION_ID >> {ran}; echo $N"


class Site:
    """A server and workers as processes, around a PostgreSQL that the test stops."""

    def __init__(self, folder: Path, postgres: EmbeddedServer, kafka: KafkaServer, name: str) -> None:
        self.folder, self.postgres, self.name = folder, postgres, name
        self.url = postgres.dsn_for(name)
        self.results = f"{kafka.url}/{name}"
        self.go, self.ran = folder / "go", folder / "ran"
        self.server: Program | None = None

    async def open(self) -> None:
        connection = await asyncpg.connect(self.postgres.superuser_dsn("postgres"))
        await connection.execute(f"CREATE DATABASE {self.name} OWNER mainspring")
        await connection.close()
        await migrate(self.url)
        async with Database(self.url, size=1) as database, database.connection() as connection_:
            self.token = await issue_token(connection_, tenant=1, name="admin", scopes=("admin",))
            self.worker_token = await issue_token(
                connection_, tenant=1, name="worker", scopes=("worker",), grants=EVERYTHING
            )

    async def serve(self) -> None:
        port = () if self.server is None else ("--port", str(self.server.port))
        running = server(
            self.folder, self.url, "--results", f"{self.results}?partitions=3", "--session-lease", str(LEASE_S), *port
        )
        running.port = running.port if self.server is None else self.server.port
        self.server = running
        await running.ready(within_s=60)

    def stop(self) -> None:
        if self.server is not None:
            self.server.kill()

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[worker_program.Program]:
        assert self.server is not None
        options = ("--results", self.results, "--slots", str(EXECUTIONS))
        url = f"http://127.0.0.1:{self.server.port}"
        program = worker_program.Program(self.folder, url, self.worker_token, *options)
        try:
            yield program
        finally:
            if not program.dead():
                program.send(signal.SIGKILL)
            await program.ended()

    def client(self) -> AsyncClient:
        assert self.server is not None
        return AsyncClient(f"http://127.0.0.1:{self.server.port}", self.token)


async def end_at_once(postgres: EmbeddedServer) -> None:
    """A shutdown that waits for nothing: the leases go on."""
    assert postgres.pid is not None
    os.kill(postgres.pid, signal.SIGQUIT)
    await until("the end of PostgreSQL", lambda: postgres.pid is None, within_s=20)


async def outage_over(seconds: float) -> None:
    """Wait out the outage; only the clock can end it."""
    import time

    end = time.monotonic() + seconds
    await until("the end of the outage", lambda: time.monotonic() >= end, within_s=seconds + 5)


@pytest.mark.requirement(45)
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["drained", "killed"])
async def test_results_of_an_outage_are_settled_afterwards_exactly_once(
    durable: EmbeddedServer, kafka: KafkaServer, tmp_path: Path, end: signal.Signals
) -> None:
    """Attempts end while api and database are down; the lease expires; the worker is replaced. None runs again."""
    site = Site(tmp_path, durable, kafka, f"kept{os.getpid()}{int(end)}")
    await site.open()
    async with AsyncExitStack() as stack:
        await site.serve()
        assert site.server is not None
        stack.callback(site.stop)
        work = WAITS.format(go=site.go, ran=site.ran)
        async with site.client() as client, site.worker() as first:
            await first.up()
            task = {"kind": "shell", "argv": ["sh", "-c", work], "env": {"N": "{{params.n}}"}}
            params = {"n": {"type": "integer"}}
            await client.create_job({"name": "kept", "task": task, "params": params, "retries": {"max": 3}})
            batch = [wire.BatchItem(job="kept", params={"n": n}) for n in range(EXECUTIONS)]
            ids = {item.execution_id for item in (await client.submit(batch)).items}

            async def running() -> bool:
                return len((await client.executions(state=["running"], limit=100)).items) == EXECUTIONS

            await until_async("all to run", running, within_s=60)
            site.server.kill()
            await end_at_once(durable)
            site.go.touch()
            try:
                await until("the results to be in the stream", lambda: kept(first) == EXECUTIONS, within_s=30)
            except AssertionError as error:
                raise AssertionError(f"{error}: {first.text()}") from None
            first.send(end)
            await first.ended()
        async with site.worker() as second:
            await outage_over(OUTAGE_S)
            await durable.start()
            await site.serve()
            async with site.client() as client:

                async def settled() -> bool:
                    return len((await client.executions(state=["succeeded"], limit=100)).items) == EXECUTIONS

                await until_async("all to be settled", settled, within_s=90)
                await second.up()
                found = (await client.executions(limit=100)).items
                assert {e.execution_id for e in found} == ids
                assert {e.attempt for e in found} == {1}, "nothing was declared lost and run again"
                outputs = [(await client.logs(e.execution_id)).chunks[0].text for e in found]
                assert sorted(outputs, key=int) == [f"{n}\n" for n in range(EXECUTIONS)]
    assert Counter(site.ran.read_text().split()) == Counter(map(str, ids)), "each ran once"


def kept(worker: worker_program.Program) -> int:
    """How many results the worker has stored in the stream, as it logs."""
    lines = [json.loads(line) for line in worker.text().splitlines() if '"results.kept"' in line]
    return sum(line["results"] for line in lines)
