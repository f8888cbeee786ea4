"""Start a shop with about fifty jobs, five workflows and five workers, and everything that can go wrong in it.

    python examples/company/start.py [FOLDER] [--port 7171]

It prints a sign-in link and runs until Ctrl-C. FOLDER keeps the data; the default is a temporary one. What is there to
find: a job that fails since this afternoon, one that fails with a traceback, one that is late, a queue without workers,
two approvals, a killed worker, a paused job, a blackout, and a long execution with progress.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from past import write_dead_letters, write_past

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.embedded.server import EmbeddedServer
from mainspring.manifest import read_workflows
from mainspring.store.db import Database

HERE = Path(__file__).parent
PROGRAM = (sys.executable, "-m", "mainspring.cli.main")
WORKERS = {
    "general-1": ("--slots", "8", "-q", "short", "-q", "long", "--label", "zone=eu-1"),
    "general-2": ("--slots", "4", "-q", "short", "--label", "zone=eu-2"),
    "batch-1": ("--slots", "4", "-q", "long", "--label", "zone=eu-1,disk=large"),
    "spare-1": ("--slots", "1", "-q", "spare", "--label", "zone=eu-2"),
}
"""Besides `local`, the worker of `mainspring dev`. `spare-1` is killed."""
FAILING = ("finance-ledger-export", "data-quality", "data-partner-export", "shop-stock-sync")


@dataclass
class Company:
    """A running company."""

    folder: Path
    port: int
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        return (self.folder / ".mainspring" / "token").read_text().strip()

    @property
    def screen(self) -> Path:
        return self.folder / "processes.txt"

    def lay_out(self) -> None:
        (self.folder / "jobs").mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)  # jobs run as another user
        shutil.copy(HERE / "functions.py", self.folder / "jobs" / "shop.py")
        self.screen.write_text("")

    def client(self) -> AsyncClient:
        return AsyncClient(self.url, self.token)

    def start(self, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("MAINSPRING_")}
        with self.screen.open("ab") as screen:
            process = subprocess.Popen(
                [*PROGRAM, *words], cwd=self.folder, stdout=screen, stderr=subprocess.STDOUT, start_new_session=True,
                env={**clean, **environment},
            )  # fmt: skip
        self.processes.append(process)
        return process

    async def stop(self) -> None:
        for process in reversed(self.processes):  # the server last
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                await asyncio.to_thread(process.wait)


@asynccontextmanager
async def company(folder: Path, port: int) -> AsyncIterator[Company]:
    """Start everything; return when the scene is set."""
    shop = Company(folder, port)
    shop.lay_out()
    postgres = EmbeddedServer(folder / ".postgres")
    await postgres.start()
    try:
        server = shop.start("dev", "--port", str(port), "--database-url", postgres.dsn)
        await _until_shown(shop, server)
        async with shop.client() as client, Database(postgres.dsn, size=2) as database:
            await _set_the_scene(shop, client, database)
        yield shop
    finally:
        await shop.stop()
        await postgres.stop()


async def _until_shown(shop: Company, server: subprocess.Popen[bytes]) -> None:
    while "UI http" not in shop.screen.read_text():
        if server.poll() is not None:
            raise SystemExit(shop.screen.read_text())
        await asyncio.sleep(0.05)


async def _set_the_scene(shop: Company, client: AsyncClient, database: Database) -> None:
    token = await client.issue_worker_token(wire.NewWorkerToken(name="fleet", queues=["*"], labels=["*"]))
    started = {
        name: shop.start("worker", "--name", name, *options, MAINSPRING_URL=shop.url, MAINSPRING_TOKEN=token.token)
        for name, options in WORKERS.items()
    }
    for manifest in ("before.yaml", "jobs.yaml"):
        applied = shop.start(
            "apply", str(HERE / manifest), "--yes", MAINSPRING_URL=shop.url, MAINSPRING_TOKEN=shop.token
        )
        if await asyncio.to_thread(applied.wait):
            raise SystemExit(shop.screen.read_text())
    await _until_workers(client, len(WORKERS) + 1)
    await write_past(client, database)
    await client.create_job({"name": "ops-migrate-images", "queue": "spare", "retries": {"max": 0},
                             "metadata": {"labels": {"team": "ops"}, "owner": "ops@example.com"},
                             "task": {"kind": "shell", "argv": ["sleep", "600"]}})  # fmt: skip
    lost = await client.trigger("ops-migrate-images")
    await _surroundings(client)
    await write_dead_letters(database)
    await _runs(client)
    await _until_running(client, lost)
    started["spare-1"].send_signal(signal.SIGKILL)
    await _until_missed(client, "spare-1")


async def _until_workers(client: AsyncClient, count: int) -> None:
    while len((await client.workers()).items) < count:
        await asyncio.sleep(0.05)


async def _until_running(client: AsyncClient, execution: wire.Execution) -> None:
    while (await client.execution(execution.execution_id)).state != "running":
        await asyncio.sleep(0.05)


async def _until_missed(client: AsyncClient, name: str) -> None:
    while any(w.name == name and w.state in ("idle", "busy") for w in (await client.workers()).items):
        await asyncio.sleep(0.05)


async def _surroundings(client: AsyncClient) -> None:
    now = datetime.now(UTC)
    await client.pause_job("mail-digest", "the template is being rewritten")
    tonight = now.replace(hour=23, minute=0, second=0, microsecond=0)
    await client.add_blackout(
        wire.NewBlackout(start_at=tonight, end_at=tonight + timedelta(hours=3), queue="long", reason="storage moves")
    )
    await client.add_blackout(
        wire.NewBlackout(start_at=now, end_at=now + timedelta(hours=5), job="shop-prices", reason="price freeze")
    )
    await client.add_silence(
        wire.NewSilence(matchers={"job": "shop-stock-sync"}, end_at=now + timedelta(hours=4), reason="known issue")
    )
    failed = [await client.trigger(name) for name in FAILING for _ in range(2)]
    for execution in failed:
        await client.wait(execution.execution_id, timeout_s=60)
    await client.trigger("search-reindex")
    await client.trigger("ml-train-recommendations")
    await client.trigger("ml-embeddings")


async def _runs(client: AsyncClient) -> None:
    for spec in read_workflows((HERE / "workflows.yaml").read_text()):
        await client.apply_workflow(spec)
    names = ["data-nightly"] * 4 + ["shop-catalog-import"] * 3 + ["finance-month-close"]
    runs = [await client.start_run(name) for name in names]
    for run in runs:
        await client.wait(run.run_id, timeout_s=60)
    await client.start_run("shop-release")
    await client.start_run("finance-refund")


async def main(folder: Path | None, port: int) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    with tempfile.TemporaryDirectory(prefix="company-") as temporary:
        async with company(folder or Path(temporary), port) as shop:
            async with shop.client() as client:
                print(f"UI {shop.url}{(await client.login_link()).path}", flush=True)
            await stopped.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A shop with fifty jobs, to look at.")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--port", type=int, default=7171)
    given = parser.parse_args()
    asyncio.run(main(given.folder, given.port))
