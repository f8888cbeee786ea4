"""A real worker in the test's process whose executor records what it runs, and a real `serve` process to break."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import httpx2

from mainspring.api.auth import issue_token
from mainspring.client import AsyncClient
from mainspring.domain.grants import EVERYTHING
from mainspring.store.db import Database
from mainspring.worker.executors import Done, Work
from mainspring.worker.service import Worker, WorkerConfig
from mainspring.worker.transport.api_client import ApiAddress
from tests.support.processes import free_port, until, until_async

QUEUE = "short"
JOB = "recorded"
WAIT_S = 60.0


@dataclass
class Recorder:
    """Executor of the kind noop. While `gate` is not set, attempts stay; `blocks_s` blocks the event loop once."""

    begun: list[tuple[UUID, int]] = field(default_factory=list)
    staying: int = 0
    blocks_s: float = 0.0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def execute(self, work: Work) -> Done:
        self.begun.append((work.assignment.execution_id, work.assignment.attempt))
        if self.blocks_s:
            blocks_s, self.blocks_s = self.blocks_s, 0.0
            threading.Event().wait(blocks_s)  # blocks the event loop
        self.staying += 1
        await self.gate.wait()
        self.staying -= 1
        return Done("succeeded", 0)


@dataclass
class Scene:
    """Submits executions past whatever is broken, and checks what became of them."""

    client: AsyncClient
    worker: Worker
    recorder: Recorder
    slots: int

    async def submit(self, count: int) -> list[UUID]:
        return [(await self.client.trigger(JOB)).execution_id for _ in range(count)]

    async def succeeded(self, ids: Sequence[UUID], *, attempts: int = 1) -> None:
        """Each one succeeded, ran exactly once, and needed at most so many attempts."""
        for execution in ids:
            done = await self.client.wait(execution, timeout_s=WAIT_S)
            assert done.state == "succeeded" and done.attempt <= attempts, done
        ran = Counter(execution for execution, _ in self.recorder.begun)
        assert {execution: ran[execution] for execution in ids} == dict.fromkeys(ids, 1)

    async def uses_all_slots(self) -> None:
        """No slot was lost: the worker runs as many at once as it has, and what follows as well."""
        self.recorder.gate.clear()
        ids = await self.submit(self.slots + 1)
        await until("every slot in use", lambda: self.recorder.staying == self.slots, within_s=WAIT_S)
        self.recorder.gate.set()
        await self.succeeded(ids, attempts=2)
        await until("an idle worker", lambda: self.worker.busy == 0, within_s=WAIT_S)


@asynccontextmanager
async def recording(
    client: AsyncClient,
    url: str,
    token: str,
    *,
    streams: bool,
    slots: int = 4,
    recorder: Recorder | None = None,
) -> AsyncIterator[Scene]:
    """A worker at this address, which may lead through a proxy; the client's leads to the api."""
    recorder = recorder or Recorder()
    recorder.gate.set()
    config = WorkerConfig(ApiAddress(url, token), slots=slots, name="recording", drain_s=5.0, streams=streams)
    worker = Worker(config, {"noop": recorder})
    await worker.start()
    await worker.ready()
    await client.create_job({"name": JOB, "task": {"kind": "noop"}, "queue": QUEUE, "retries": {"max": 0}})
    try:
        yield Scene(client, worker, recorder, slots)
    finally:
        recorder.gate.set()
        await worker.drain()
        await worker.stop()


class Serve:
    """A `serve` process that can be killed, stopped and started again at the same address."""

    def __init__(self, database_url: str, folder: Path, lease_s: float) -> None:
        self._database_url, self._folder, self._lease_s = database_url, folder, lease_s
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.token = self.worker_token = ""
        self.process: subprocess.Popen[bytes] | None = None

    def _spawn(self) -> None:
        env = {k: v for k, v in os.environ.items() if not k.startswith("MAINSPRING_")}
        options = ["--port", str(self._port), "--parent", str(os.getpid()), "--session-lease", str(self._lease_s)]
        with (self._folder / "serve.log").open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mainspring.cli.main", "serve", *options],
                env=env | {"MAINSPRING_DATABASE_URL": self._database_url},
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    async def start(self) -> None:
        self._spawn()
        async with httpx2.AsyncClient(trust_env=False) as http:

            async def is_up() -> bool:
                try:
                    return (await http.get(f"{self.url}/readyz")).status_code == 200
                except httpx2.TransportError:
                    return False

            await until_async("the server", is_up, within_s=60)

    async def issue_tokens(self) -> None:
        async with Database(self._database_url, size=1) as database, database.connection() as connection:
            self.token = await issue_token(connection, tenant=1, name="admin", scopes=("admin",))
            self.worker_token = await issue_token(
                connection, tenant=1, name="worker", scopes=("worker",), grants=EVERYTHING
            )

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def ended(self) -> None:
        assert self.process is not None
        await asyncio.to_thread(self.process.wait, 30)


@asynccontextmanager
async def serve(database_url: str, folder: Path, *, lease_s: float) -> AsyncIterator[Serve]:
    running = Serve(database_url, folder, lease_s)
    await running.start()
    try:
        await running.issue_tokens()
        yield running
    finally:
        running.send(signal.SIGCONT)
        running.send(signal.SIGKILL)
        await running.ended()
