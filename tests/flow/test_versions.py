"""Programs of an earlier version beside this one: workers and servers can be upgraded one after the other.

The earlier program comes from the project's own history, so these tests need a clone that has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.embedded.server import EmbeddedServer
from mainspring.store.migrate import migrate
from tests.conftest import clone, started
from tests.support.earlier_version import answers, empty_database, issue_tokens, program, source_of
from tests.support.processes import free_port, until_async

pytestmark = pytest.mark.anyio

BEFORE_STREAMS = "a3359f5"
"""The last commit whose workers and servers know only long polls."""
BEFORE_TENANTS = "1c3f552"
"""The last commit before tenants, secrets and manifests: a dozen migrations ago."""
SINGLE = 30
FUNCTIONS = "def double(n: int) -> int:\n    return 2 * n\n"


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return source_of(BEFORE_STREAMS, tmp_path_factory.mktemp("earlier"))


async def use(client: AsyncClient) -> None:
    """Run tasks alone and in numbers, with output, a result and a failure."""
    tasks = {
        "noop": {"kind": "noop"},
        "shell": {"kind": "shell", "argv": ["echo", "printed"]},
        "function": {"kind": "python", "function": "functions:double"},
        "failing": {"kind": "shell", "argv": ["false"]},
    }
    for name, task in tasks.items():
        await client.create_job({"name": name, "task": task, "retries": {"max": 0}})
    for _ in range(SINGLE):
        await client.trigger("noop")
    shell = await client.trigger("shell")
    function = await client.trigger("function", wire.RunNow(params={"n": 21}))
    failing = await client.trigger("failing")

    async def ended() -> bool:
        listed = await client.executions(limit=100)
        return len(listed.items) == SINGLE + 3 and all(e.finished_at is not None for e in listed.items)

    await until_async("all executions ended", ended, within_s=60)
    assert (await client.execution(failing.execution_id)).state == "failed"
    assert (await client.execution(function.execution_id)).result == 42
    assert [chunk.text for chunk in (await client.logs(shell.execution_id)).chunks] == ["printed\n"]


@pytest.fixture
def modules(tmp_path: Path) -> str:
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    return str(tmp_path / "functions.py")


async def test_a_worker_of_an_earlier_version(postgres: EmbeddedServer, earlier: Path, modules: str) -> None:
    async with started(await clone(postgres)) as cluster, cluster.client() as client:
        address = {"MAINSPRING_URL": cluster.url, "MAINSPRING_TOKEN": cluster.worker_token}
        async with program(earlier, "worker", "--name", "earlier", "-m", modules, **address):
            await use(client)


async def test_a_server_of_an_earlier_version(postgres: EmbeddedServer, earlier: Path, modules: str) -> None:
    database, port = await empty_database(postgres, "earlier"), free_port()
    token, worker_token = await asyncio.to_thread(issue_tokens, earlier, database)
    url = f"http://127.0.0.1:{port}"
    async with (
        program(earlier, "serve", "--port", str(port), MAINSPRING_DATABASE_URL=database),
        AsyncClient(url, token) as client,
    ):
        await until_async("the server answers", lambda: answers(client), within_s=60)
        async with program(
            None, "worker", "--name", "new", "-m", modules, MAINSPRING_URL=url, MAINSPRING_TOKEN=worker_token
        ):
            await use(client)


@pytest.mark.requirement(151)
async def test_servers_of_both_versions_during_an_upgrade(
    postgres: EmbeddedServer, modules: str, tmp_path: Path
) -> None:
    """The schema is migrated under a running cluster. Both versions then work side by side, on executions of the other,
    until the earlier one stops. Each instant of a job that fires every second is decided once."""
    source = source_of(BEFORE_TENANTS, tmp_path / "earlier")
    database = await empty_database(postgres, "upgraded")
    token, worker_token = await asyncio.to_thread(issue_tokens, source, database)
    async with side(None, "new", database, token, worker_token, modules) as new_side:
        async with side(source, "old", database, token, worker_token, modules) as old_side:
            old = await old_side.begin()
            tick = {"name": "tick", "task": {"kind": "noop"}, "queue": "tick", "overlap": "allow"}
            await old.create_job({**tick, "schedule": {"every": "1s"}})
            await until_fires(old, 3)
            await migrate(database)
            new = await new_side.begin()
            for name, client, other in (("through-old", old, new), ("through-new", new, old)):
                for queue in ("old", "new"):
                    # Functions of jobs that a newer server wrote wait for a worker of a newer server.
                    kinds = ("shell",) if client is new and queue == "old" else ("shell", "function")
                    await use_queue(f"{name}-for-{queue}", queue, kinds, client, other)
            await until_fires(new, len(await fires(new)) + 3)
        await until_fires(new, len(await fires(new)) + 3)
        await new.pause_job("tick", "enough")
        decided = await fires(new)
    seconds = [round((at - decided[0]).total_seconds()) for at in decided]
    assert seconds == list(range(len(decided))), "each second once"


@dataclass
class Side:
    """A server and a worker of one version, from `begin` on. The worker serves the queue of that name, and `tick`."""

    source: Path | None
    name: str
    database: str
    token: str
    worker_token: str
    modules: str
    stack: AsyncExitStack

    async def begin(self) -> AsyncClient:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        serve = program(self.source, "serve", "--port", str(port), MAINSPRING_DATABASE_URL=self.database)
        await self.stack.enter_async_context(serve)
        client = await self.stack.enter_async_context(AsyncClient(url, self.token))
        await until_async(f"the {self.name} server answers", lambda: answers(client), within_s=60)
        options = ("--name", self.name, "-q", self.name, "-q", "tick", "-m", self.modules)
        address = {"MAINSPRING_URL": url, "MAINSPRING_TOKEN": self.worker_token}
        await self.stack.enter_async_context(program(self.source, "worker", *options, **address))
        return client


@asynccontextmanager
async def side(
    source: Path | None, name: str, database: str, token: str, worker_token: str, modules: str
) -> AsyncIterator[Side]:
    async with AsyncExitStack() as stack:
        yield Side(source, name, database, token, worker_token, modules, stack)


async def use_queue(name: str, queue: str, kinds: tuple[str, ...], client: AsyncClient, other: AsyncClient) -> None:
    """Create and run jobs through one server, and look at their executions through the other."""
    tasks = {
        "shell": {"kind": "shell", "argv": ["echo", "printed"]},
        "function": {"kind": "python", "function": "functions:double", "args": {"n": 21}},
    }
    for kind in kinds:
        await client.create_job({"name": f"{name}-{kind}", "task": tasks[kind], "queue": queue})
        execution = await client.trigger(f"{name}-{kind}")
        found = await other.wait(execution.execution_id, timeout_s=60)
        assert (found.state, found.worker) == ("succeeded", queue), found.error
        if kind == "function":
            assert found.result == 42
        else:
            assert [chunk.text for chunk in (await other.logs(execution.execution_id)).chunks] == ["printed\n"]


async def fires(client: AsyncClient) -> list[datetime]:
    listed = await client.executions(job="tick", limit=500)
    return sorted(execution.fire_at for execution in listed.items)


async def until_fires(client: AsyncClient, count: int) -> None:
    async def fired() -> bool:
        return len(await fires(client)) >= count

    await until_async(f"{count} fires", fired, within_s=60)
