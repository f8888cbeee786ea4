"""After a day's work with engines, no secret is in the archive, in any topic of Kafka or in any log."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mainspring.api.auth import issue_token
from mainspring.archive.write import ArchiveWriter
from mainspring.backends.archive_places import FolderPlace
from mainspring.backends.kafka_url import read_address
from mainspring.client import AsyncClient
from mainspring.domain.grants import EVERYTHING
from mainspring.embedded.server import EmbeddedServer
from mainspring.store.archives import CONTENTS
from mainspring.store.db import Database
from tests.conftest import clone
from tests.support import worker_program
from tests.support.database_roles import server_urls
from tests.support.engine_servers import KafkaServer
from tests.support.http_receiver import receiving, reply
from tests.support.planted import JOB, PLANTED, SCRIPT, found_in, settings, work
from tests.support.processes import free_port, until_async
from tests.support.program import Program
from tests.support.secret_keys import key_file
from tests.support.topic_reader import read_all

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PREFIX = "planted"
PASSWORD = "Xq7-broker-Vm2kRt9+sesame"
WAITS = "while [ ! -e {go} ]; do sleep 0.05; done; "
TODAY = -2 * 86_400.0
"""An age of days that includes today."""


class Site:
    """A server with Kafka and an archive, and a worker that keeps results in Kafka, as processes."""

    def __init__(self, folder: Path, url: str, kafka: KafkaServer) -> None:
        self.folder, self.url = folder, url
        self.kafka = kafka.url.replace(kafka.password, quote(kafka.password, safe=""))
        self.port = free_port()
        self.go, self.archive = folder / "go", folder / "archive"
        self.server: Program | None = None
        self.token = self.worker_token = ""

    async def open(self) -> None:
        async with Database(self.url, size=1) as database, database.connection() as connection:
            self.token = await issue_token(connection, tenant=1, name="admin", scopes=("admin",))
            self.worker_token = await issue_token(
                connection, tenant=1, name="worker", scopes=("worker",), grants=EVERYTHING
            )
        await self.serve()

    async def serve(self) -> None:
        urls = server_urls(self.url)
        secret = {
            "MAINSPRING_DATABASE_URL": urls["database_url"],
            "MAINSPRING_TENANT_DATABASE_URL": urls["tenant_database_url"],
            "MAINSPRING_EVENTS": f"{self.kafka}/{PREFIX}-events?partitions=1",
            "MAINSPRING_RESULTS": f"{self.kafka}/{PREFIX}?partitions=1",
            "MAINSPRING_QUEUE": f"{self.kafka}/{PREFIX}?partitions=1",
        }
        words = ["--port", str(self.port), "--artifact-store", str(self.folder / "artifacts"), "--log", "debug"]
        words += ["--archive-url", str(self.archive), "--secret-key-file", str(key_file())]
        words += ["--allow-net", "127.0.0.0/8"]
        self.server = Program(self.folder, "serve", *words, env=secret, port=self.port)
        await self.server.ready(within_s=90)

    def client(self) -> AsyncClient:
        return AsyncClient(f"http://127.0.0.1:{self.port}", self.token)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        words = [
            "--slots",
            "1",
            "-m",
            "app",
            "--allow-net",
            "127.0.0.0/8",
            "--log",
            "debug",
            "--parent",
            str(os.getpid()),
        ]
        words += ["--results", f"{self.kafka}/{PREFIX}"]
        address = f"http://127.0.0.1:{self.port}"
        path = str(self.folder / "jobs")
        async with worker_program.worker(self.folder, address, self.worker_token, *words, path=path):
            yield

    async def topics(self) -> dict[str, bytes]:
        address = read_address(f"{self.kafka}/{PREFIX}", option="--results", prefix="")
        return await asyncio.to_thread(read_all, address.client, PREFIX)

    async def topic_has(self, topic: str, text: str) -> None:
        async def there() -> bool:
            return text.encode() in (await self.topics()).get(f"{PREFIX}-{topic}", b"")

        await until_async(f"{text} to be in {topic}", there, within_s=90)

    async def archived(self) -> bytes:
        """Archive all days, as the leader does; return the files, and their columns as text and bytes."""
        async with Database(self.url, size=2) as database:
            writer = ArchiveWriter(database, FolderPlace(self.archive))
            for parent in CONTENTS:
                assert await writer.archive_all(parent, after_s=TODAY), parent
        files = [file for file in self.archive.rglob("*") if file.is_file()]
        assert {file.relative_to(self.archive).parts[0] for file in files} == {"history", "attempts", "log_chunks"}
        return b"\n".join(part for file in files for part in (file.read_bytes(), *columns_of(file)))


def columns_of(file: Path) -> list[bytes]:
    table = pq.read_table(file)
    return [
        b"\n".join(
            value if isinstance(value, bytes) else str(value).encode()
            for value in table.column(field.name).to_pylist()
            if value is not None
        )
        for field in table.schema
        if not pa.types.is_timestamp(field.type)
    ]


@pytest.fixture
async def site(postgres: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Site]:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "app.py").write_text(JOB)
    kafka = KafkaServer(tmp_path / "broker", user="mainspring", password=PASSWORD)
    await kafka.start()
    site = Site(tmp_path, await clone(postgres), kafka)
    try:
        await site.open()
        yield site
    finally:
        if site.server is not None:
            site.server.kill()
        kafka.kill()


async def test_nothing_secret_is_in_the_archive_in_kafka_or_in_the_logs(site: Site) -> None:
    async with site.client() as client, site.worker():
        async with receiving(lambda got: reply(body=got.headers.get("authorization", "").encode())) as receiver:
            await work(client, receiver.url())
            await settings(client, receiver.url())
        kept = await outage(site, client)
        topics = await site.topics()
    archived = await site.archived()
    planted = PLANTED | {
        "admin token": site.token,
        "worker token": site.worker_token,
        "broker password": PASSWORD,
        "database password": urlsplit(site.url).password or "",
    }
    logs = [file for pattern in ("*.log", "*.txt") for file in site.folder.glob(pattern)]
    searched = {**topics, "archive": archived, **{log.name: log.read_bytes() for log in logs}}
    assert {where: found for where, text in searched.items() if (found := found_in(text, planted))} == {}
    # What was searched has what happened.
    assert len(logs) >= 3 and "•••".encode() in archived
    for topic, text in (("results", kept), ("results", "•••"), ("jobs.normal", "secret://"), ("events", kept)):
        assert text.encode() in topics[f"{PREFIX}-{topic}"], (topic, text)


async def outage(site: Site, client: AsyncClient) -> str:
    """End attempts that print secrets while no server runs: their results and output go through Kafka.

    The worker has one slot, so that executions also wait, and pass the topics of the queue.
    """
    task: dict[str, Any] = {"kind": "shell", "argv": [WAITS.format(go=site.go) + SCRIPT], "shell": True}
    task["env"] = {"KEY": "secret://shell"}
    await client.create_job({"name": "waits", "task": task, "retries": {"max": 0}})
    first = (await client.trigger("waits")).execution_id

    async def running() -> bool:
        return (await client.execution(first)).state == "running"

    await until_async("the first attempt to run", running, within_s=60)
    others = [(await client.trigger(name)).execution_id for name in ("waits", "uses-python")]
    for execution in others:
        await site.topic_has("jobs.normal", str(execution))
    assert site.server is not None
    await site.server.end(signal.SIGKILL)
    site.go.touch()
    await site.topic_has("results", str(first))
    await site.serve()
    for execution in (first, *others):
        assert (await client.wait(execution, timeout_s=120)).state == "failed"
        await site.topic_has("events", str(execution))
    return str(first)
