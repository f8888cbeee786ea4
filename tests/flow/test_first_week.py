"""The first week in production: what a user does with a new installation, with real processes, terminal and browser.

Add a job, break it, be notified, find the cause, fix it, replay, upgrade under load, roll back, import a crontab, apply
a manifest. Each step checks what the user sees.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from playwright.async_api import expect

from mainspring.api.auth import issue_token
from mainspring.client import AsyncClient
from mainspring.domain.errors import Unavailable
from mainspring.domain.grants import EVERYTHING
from mainspring.embedded.server import EmbeddedServer
from mainspring.store.db import Database
from mainspring.wire import Execution, RunNow
from tests.conftest import clone
from tests.support import chromium
from tests.support.http_receiver import Receiver, receiving
from tests.support.processes import free_port, until, until_async
from tests.support.program import Program
from tests.support.secret_keys import key_file
from tests.support.terminal import Terminal

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PATIENCE_S = 120.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
SCRIPT = 'test -e "$1" || { echo "no such file: $1" >&2; exit 3; }\necho "$(wc -l < "$1") rows"\n'
CRONTAB = "# m h dom mon dow command\n30 6 * * 1-5 /usr/local/bin/send-invoices --all\n@daily /usr/local/bin/clean-up\n"
MANIFEST = """\
kind: Job
metadata: {name: load, labels: {team: finance}}
spec:
  shell: [echo, loaded]
  schedule: {cron: "0 1 * * *"}
---
kind: Job
metadata: {name: summary}
spec:
  shell: [echo, summarized]
  needs: [load]
"""


@dataclass
class Installation:
    """Two servers on one database, and a worker of each."""

    folder: Path
    database_url: str
    token: str
    worker_token: str
    ports: tuple[int, int]

    def __post_init__(self) -> None:
        self.servers = [self.serve(port) for port in self.ports]
        self.workers: list[Program] = []

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    def serve(self, port: int) -> Program:
        words = ("serve", "--roles", "api,scheduler", "--port", str(port), "--allow-net", "127.0.0.1/32")
        env = {"MAINSPRING_DATABASE_URL": self.database_url, "MAINSPRING_SECRET_KEY_FILE": str(key_file())}
        return Program(self.folder, *words, env=env, port=port)

    def work(self, number: int) -> Program:
        env = {"MAINSPRING_URL": self.urls[number], "MAINSPRING_TOKEN": self.worker_token}
        port = free_port()
        words = ("worker", "--name", f"worker-{number}", "--slots", "4", "--health-port", str(port))
        return Program(self.folder, *words, env=env, port=port)

    async def start(self) -> None:
        for server in self.servers:
            await server.ready(within_s=PATIENCE_S)
        self.workers = [self.work(number) for number in range(2)]
        for worker in self.workers:
            await worker.ready(within_s=PATIENCE_S)

    async def upgrade(self) -> None:
        """Replace one process after the other, as a rolling upgrade does."""
        for number in range(2):
            assert await self.servers[number].end(signal.SIGTERM) == 0, self.servers[number].text
            self.servers[number] = self.serve(self.ports[number])
            await self.servers[number].ready(within_s=PATIENCE_S)
        for number in range(2):
            assert await self.workers[number].end(signal.SIGTERM) == 0, self.workers[number].text
            self.workers[number] = self.work(number)
            await self.workers[number].ready(within_s=PATIENCE_S)

    def stop(self) -> None:
        for process in [*self.workers, *self.servers]:
            process.kill()


@asynccontextmanager
async def installation(folder: Path, database_url: str) -> AsyncIterator[Installation]:
    async with Database(database_url, size=2) as database, database.connection() as connection:
        token = await issue_token(connection, tenant=1, name="ops", scopes=("admin",))
        worker = await issue_token(connection, tenant=1, name="fleet", scopes=("worker",), grants=EVERYTHING)
    found = Installation(folder, database_url, token, worker, (free_port(), free_port()))
    try:
        await found.start()
        yield found
    finally:
        found.stop()


async def test_the_first_week_in_production(postgres: EmbeddedServer, tmp_path: Path) -> None:
    data = tmp_path / "orders.csv"
    (tmp_path / "report.sh").write_text(SCRIPT)
    async with (
        installation(tmp_path, await clone(postgres)) as site,
        receiving(lambda _: OK) as pager,
        AsyncClient(site.urls[0], site.token) as client,
    ):
        terminal = Terminal(
            tmp_path, {"HOME": str(tmp_path), "MAINSPRING_URL": site.urls[0], "MAINSPRING_TOKEN": site.token}
        )
        await add_a_job(terminal, tmp_path, pager)
        failed = await break_it(terminal, pager)
        await find_the_cause(site, terminal, failed)
        await fix_and_replay(terminal, client, data, failed)
        await upgrade_under_load(site)
        await roll_back(terminal, client, tmp_path)
        await import_a_crontab(terminal, tmp_path)
        await apply_a_manifest(terminal, client, tmp_path)


async def add_a_job(terminal: Terminal, folder: Path, pager: Receiver) -> None:
    channel = await terminal.type(
        *("channels", "add", "pager", "--webhook", pager.url("/hook"), "--event", "execution.failed")
    )
    assert channel.code == 0 and "secret" in channel.text, channel.text
    words = ("--cron", "0 2 * * *", "--retries", "0", "--", "sh", str(folder / "report.sh"), str(folder / "orders.csv"))
    added = await terminal.type("add", "report", *words)
    assert added.code == 0, added.text
    assert len(re.findall(r"02:00:00", added.text)) >= 3, f"the next three fires\n{added.text}"


async def break_it(terminal: Terminal, pager: Receiver) -> UUID:
    """The file is missing: the execution fails, and a notification arrives."""
    ran = await terminal.type("run", "report", "--follow")
    assert ran.code == 10 and "no such file" in ran.text, ran.text
    await until("a notification", lambda: bool(pager.got), within_s=PATIENCE_S)
    sent = json.loads(pager.got[0].body)
    assert "report" in pager.got[0].body.decode() and "execution.failed" in pager.got[0].body.decode(), sent
    found = re.search(rb"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", pager.got[0].body)
    assert found is not None, sent
    return UUID(found[0].decode())


async def find_the_cause(site: Installation, terminal: Terminal, failed: UUID) -> None:
    """The list of dead letters and the log name the cause; in the browser, the failures lead to it."""
    listed = await terminal.type("dead-letters", "list")
    assert listed.code == 0 and "report" in listed.text, listed.text
    log = await terminal.type("executions", "logs", str(failed))
    assert log.code == 0 and "no such file" in log.text and "orders.csv" in log.text, log.text
    if chromium.program() is None:
        return
    async with chromium.launched() as browser:
        context = await browser.new_context(base_url=site.urls[1])
        context.set_default_timeout(PATIENCE_S * 1000)
        page = await context.new_page()
        await page.goto("/login")
        await page.get_by_label("Token").fill(site.token)
        await page.get_by_role("button", name="Sign in").click()
        await page.wait_for_url(site.urls[1] + "/")
        await page.goto("/failures")
        await expect(page.locator("main")).to_contain_text("report", timeout=PATIENCE_S * 1000)
        await page.goto(f"/executions/{failed}")
        await expect(page.locator("main")).to_contain_text("no such file", timeout=PATIENCE_S * 1000)


async def fix_and_replay(terminal: Terminal, client: AsyncClient, data: Path, failed: UUID) -> None:
    await asyncio.to_thread(data.write_text, "1\n2\n3\n")
    edited = await terminal.type("jobs", "edit", "report", "--timeout", "10m")
    assert edited.code == 0, edited.text
    replayed = await terminal.type("dead-letters", "replay", "--job", "report", answers={"[y/N]": "y"})
    assert replayed.code == 0, replayed.text
    found: list[Execution] = []

    async def is_executed() -> bool:
        found[:] = [one for one in (await client.history("report")).items if one.execution_id != failed]
        return bool(found)

    await until_async(f"the replay\n{replayed.text}", is_executed, within_s=PATIENCE_S)
    again = await client.wait(found[0].execution_id, timeout_s=PATIENCE_S)
    assert (again.state, again.version) == ("succeeded", 2), again
    log = await terminal.type("executions", "logs", str(again.execution_id))
    assert "3 rows" in log.text, log.text
    empty = await terminal.type("dead-letters", "list")
    assert "report" not in empty.text, empty.text


async def upgrade_under_load(site: Installation) -> None:
    """Every submission during a rolling restart is executed exactly once."""
    done = asyncio.Event()
    accepted: dict[str, UUID] = {}

    async def submit() -> None:
        async with AsyncClient(site.urls[0], site.token) as one, AsyncClient(site.urls[1], site.token) as other:
            number = 0
            while not done.is_set() or number < 20:
                key, clients = f"order-{number}", itertools.cycle([one, other])
                while key not in accepted:
                    with suppress(Unavailable):  # this server restarts: ask the other one
                        client = next(clients)
                        accepted[key] = (await client.trigger("report", RunNow(key=key))).execution_id
                        await client.wait(accepted[key], timeout_s=PATIENCE_S)
                number += 1

    load = asyncio.create_task(submit())
    await site.upgrade()
    done.set()
    await load
    async with AsyncClient(site.urls[0], site.token) as client:
        for execution_id in accepted.values():
            assert (await client.wait(execution_id, timeout_s=PATIENCE_S)).state == "succeeded"
    assert len(set(accepted.values())) == len(accepted) >= 20


async def roll_back(terminal: Terminal, client: AsyncClient, folder: Path) -> None:
    edited = await terminal.type("jobs", "edit", "report", "--", "false")
    assert edited.code == 0, edited.text
    assert (await terminal.type("run", "report", "--wait", "--timeout", "1ms")).code in (8, 10)
    versions = await terminal.type("jobs", "versions", "report")
    assert versions.code == 0 and len(re.findall(r"^\s*[123]\b", versions.text, re.MULTILINE)) >= 3, versions.text
    back = await terminal.type("jobs", "rollback", "report", "2")
    assert back.code == 0, back.text
    job = await client.job("report")
    assert job.version == 4 and "report.sh" in str(job.spec.task)
    ran = await terminal.type("run", "report", "--follow")
    assert ran.code == 0 and "3 rows" in ran.text, ran.text


async def import_a_crontab(terminal: Terminal, folder: Path) -> None:
    (folder / "crontab.txt").write_text(CRONTAB)
    planned = await terminal.type("import", "crontab", "crontab.txt", "--dry-run")
    assert planned.code == 0 and "send-invoices" in planned.text, planned.text
    imported = await terminal.type("import", "crontab", "crontab.txt", "--prefix", "legacy-", "--paused")
    assert imported.code == 0, imported.text
    listed = await terminal.type("jobs", "list")
    assert "legacy-send-invoices" in listed.text and "legacy-clean-up" in listed.text, listed.text


async def apply_a_manifest(terminal: Terminal, client: AsyncClient, folder: Path) -> None:
    (folder / "deploy.yaml").write_text(MANIFEST)
    applied = await terminal.type("apply", "deploy.yaml", answers={"[y/N]": "y"})
    assert applied.code == 0 and "+ needs load" in applied.text, applied.text
    assert [need.job for need in (await client.needs("summary")).needs] == ["load"]
    again = await terminal.type("diff", "deploy.yaml")
    assert (again.code, "2 unchanged" in again.text) == (0, True), again.text
