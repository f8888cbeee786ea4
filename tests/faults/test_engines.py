"""The whole system on Redis, Kafka and etcd or ZooKeeper: each killed, stopped, cut off and emptied under load."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from mainspring.api.auth import issue_token
from mainspring.client import AsyncClient
from mainspring.domain.grants import EVERYTHING
from mainspring.embedded.server import EmbeddedServer
from mainspring.store.db import Database
from tests.support.engine_door import EngineDoor, engine_door
from tests.support.engine_load import CountingRecorder, Load
from tests.support.engine_servers import EngineServer, EtcdServer, KafkaServer, RedisServer, ZooKeeperServer
from tests.support.fleet import Fleet, fleet
from tests.support.kafka_load import EVENTS, ORDERS, KafkaLoad
from tests.support.processes import free_port, until_async
from tests.support.recording_worker import JOB, Scene, recording

pytestmark = pytest.mark.fault

LONG = int(os.environ.get("ENGINE_ROUNDS", "0"))
"""How often `make test-engines` and `make faults` go through every harm."""
SERVERS: dict[str, type[EngineServer]] = {
    "redis": RedisServer,
    "kafka": KafkaServer,
    "etcd": EtcdServer,
    "zookeeper": ZooKeeperServer,
}
ROLES = {
    "redis": ("bus", "cache", "rate_limit", "delays", "fire_lock"),
    "kafka": ("results", "events", "triggers", *(("queue",) if LONG else ())),
    "etcd": ("coordinator",),
    "zookeeper": ("coordinator",),
}
EVERY_ROLE = {role for engine in ("redis", "kafka", "etcd") for role in ROLES[engine]}
LATE_S = 2.0
"""What the loss of an engine may cost: a wake-up waits for the slow poll."""
NOISE_S = 3.0
"""Of a machine that runs other tests too."""
BEYOND_LEASE_S = 3
"""An engine stays harmed for longer than the leases of the schedulers in it."""
UP = re.compile(r'^mainspring_engine_up\{engine="[\w ]+",role="(\w+)"\} (\S+)$', re.MULTILINE)
EVERY_HARM = ("killed", "stopped", "cut", "emptied")
SHORT = {
    "etcd": (("redis", "emptied"), ("etcd", "stopped"), ("kafka", "cut")),
    "zookeeper": (("redis", "stopped"), ("zookeeper", "emptied")),
}


def plan(coordinator: str) -> list[tuple[str, str]]:
    """Which engine is harmed how, in turn. In the short form, Kafka is absent beside ZooKeeper."""
    if not LONG:
        return list(SHORT[coordinator])
    return [(engine, harm) for harm in EVERY_HARM for engine in ("redis", coordinator, "kafka")] * LONG


class Engine:
    """A server behind a door, and the ways to harm it. Each returns what repairs it."""

    def __init__(self, server: EngineServer, door: EngineDoor) -> None:
        self.server, self.door = server, door

    async def killed(self) -> Callable[[], Awaitable[None]]:
        self.server.kill()
        return self.server.start

    async def stopped(self) -> Callable[[], Awaitable[None]]:
        self.server.freeze()

        async def repair() -> None:
            self.server.thaw()

        return repair

    async def cut(self) -> Callable[[], Awaitable[None]]:
        self.door.cut()

        async def repair() -> None:
            self.door.heal()

        return repair

    async def emptied(self) -> Callable[[], Awaitable[None]]:
        await self.server.restart_empty()

        async def repair() -> None: ...

        return repair


@asynccontextmanager
async def engine(server: EngineServer) -> AsyncIterator[Engine]:
    async with engine_door(server.url) as door:
        if isinstance(server, KafkaServer):  # its clients connect to the address that it advertises
            server.advertised_port = door.port
        await server.start()
        try:
            yield Engine(server, door)
        finally:
            server.kill()


@dataclass
class System:
    """Server processes and a worker. The client uses another api process than the worker."""

    scene: Scene
    load: Load
    url: str
    token: str

    async def connected(self) -> set[str]:
        """The roles whose engine the api process of the client is connected to."""
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {self.token}"}, trust_env=False) as http:
            found = dict(UP.findall((await http.get(f"{self.url}/metrics")).text))
        assert found.keys() == EVERY_ROLE, found
        return {role for role, up in found.items() if up == "1.0"}

    async def uses(self, engines: Collection[str]) -> None:
        wanted = {role for engine in engines for role in ROLES[engine]}

        async def all_up() -> bool:
            return await self.connected() == wanted

        await until_async(f"{engines} are in use", all_up, within_s=60)

    async def slowest_s(self, count: int) -> float:
        """Submit executions one after another; the longest time from a submission to the end of its execution."""
        loop, slowest = asyncio.get_running_loop(), 0.0
        for _ in range(count):
            began = loop.time()
            await self.scene.succeeded(await self.scene.submit(1))
            slowest = max(slowest, loop.time() - began)
        return slowest


def options(redis: str, kafka: str, coordinator: str) -> list[str]:
    """Every engine that a server process can use."""
    roles = ("--bus", "--cache", "--rate-limiter", "--delays", "--fire-lock")
    on_redis = [word for role in roles for word in (role, redis)]
    on_kafka = ["--results", f"{kafka}/engines?partitions=1", "--events", f"{kafka}/{EVENTS}?partitions=1"]
    on_kafka += ["--kafka-triggers", f"main={kafka}/engines", "--trigger-topic", f"main/{ORDERS}"]
    if LONG:  # beside the worker's api process, the other one gets records that only the slow poll finds
        on_kafka += ["--queue", f"{kafka}/engines?partitions=2"]
    return [*on_redis, *on_kafka, "--coordinator", coordinator]


@asynccontextmanager
async def system(running: Fleet, engines: list[str], processes: int) -> AsyncIterator[System]:
    """Server processes with these options, and a worker that records what it runs."""
    names = [running.start(api=True, options=engines) for _ in range(processes)]
    urls = [f"http://127.0.0.1:{running.ports[name]}" for name in names]
    async with httpx2.AsyncClient(trust_env=False, timeout=5) as http:
        for url in urls:
            await until_async(f"{url} is ready", lambda url=url: responds(http, url), within_s=90)  # type: ignore[misc]
    await running.balanced(processes)
    running.warm_s = await running.now_s()
    async with Database(running.url, size=1) as database, database.connection() as connection:
        token = await issue_token(connection, tenant=1, name="admin", scopes=("admin",))
        works = await issue_token(connection, tenant=1, name="worker", scopes=("worker",), grants=EVERYTHING)
    recorder = CountingRecorder()
    async with (
        AsyncClient(urls[0], token) as client,
        recording(client, urls[-1], works, streams=True, recorder=recorder) as scene,
    ):
        await client.patch_job(JOB, {"priority": 10})
        load = Load(scene, recorder)
        await load.open()
        yield System(scene, load, urls[0], token)


async def responds(http: httpx2.AsyncClient, url: str) -> bool:
    try:
        return (await http.get(f"{url}/readyz")).status_code == 200
    except httpx2.TransportError:
        return False


async def kafka_load(stack: AsyncExitStack, engines: Mapping[str, Engine], whole: System) -> KafkaLoad | None:
    """Orders and events, if the engines of this run include Kafka."""
    if "kafka" not in engines:
        return None
    server = engines["kafka"].server
    assert isinstance(server, KafkaServer)
    messages = KafkaLoad(server, whole.scene.client)
    await messages.open()
    stack.callback(messages.close)
    return messages


@pytest.mark.fault("F29")
@pytest.mark.requirement(28, 72)
@pytest.mark.parametrize("coordinator", ["etcd", "zookeeper"])
async def test_each_engine_killed_stopped_cut_and_emptied_under_load(
    durable: EmbeddedServer, lightly_loaded: str, tmp_path: Path, coordinator: str
) -> None:
    """Every fire is decided once, what was submitted runs once and in its limits, and nothing waits for long."""
    (tmp_path / "fleet").mkdir()
    harms = plan(coordinator)
    async with AsyncExitStack() as stack:
        engines = {
            name: await stack.enter_async_context(engine(SERVERS[name](tmp_path / name)))
            for name in dict.fromkeys(name for name, _ in harms)
        }
        absent = f"kafka://127.0.0.1:{free_port()}"
        kafka = engines["kafka"].door.url if "kafka" in engines else absent
        urls = (engines["redis"].door.url, kafka, engines[coordinator].door.url)
        running = await stack.enter_async_context(fleet(durable, lightly_loaded, tmp_path / "fleet", schedulers=0))
        whole = await stack.enter_async_context(system(running, options(*urls), 2))
        messages = await kafka_load(stack, engines, whole)
        slowest = {}
        for name, harm in harms:
            await whole.uses(engines)
            if messages is not None:
                await messages.send()
                if harm == "emptied":
                    await messages.settled(whole.load.run)
            epochs = await running.epochs()
            repair = await getattr(engines[name], harm)()
            begun = await running.now_s()
            if messages is not None and name == "kafka" and harm == "cut":
                await messages.send()
            await whole.load.submit()
            slowest[f"{name} {harm}"] = round(await whole.slowest_s(8), 2)
            await running.decided(begun + BEYOND_LEASE_S)
            await repair()
            if messages is not None and (name, harm) == ("kafka", "emptied"):
                await messages.emptied()
            after = await running.epochs()
            assert all(after[shard] >= epoch for shard, epoch in epochs.items()), "epochs only grow"
        await whole.uses(engines)
        latest_s = await whole.load.check()
        if messages is not None:
            await messages.send()
            await messages.settled(whole.load.run if ("kafka", "emptied") not in harms else ())
        await whole.scene.uses_all_slots()
        verdict = await running.judge("job-")
    what = f"engines harmed: {', '.join(engines)}"
    verdict.demand(what, slowest_s=slowest, delayed_late_s=round(latest_s, 2), submitted=len(whole.load.run))
    assert max(slowest.values()) < LATE_S + NOISE_S, slowest
    assert latest_s < LATE_S + NOISE_S


@pytest.mark.fault("F29")
@pytest.mark.requirement(28)
async def test_with_every_engine_down_it_works_as_on_postgresql_alone(
    durable: EmbeddedServer, lightly_loaded: str, tmp_path: Path
) -> None:
    """Two processes start, fire, run and lose one of them, while no engine has ever responded."""
    nowhere = f"127.0.0.1:{free_port()}"
    absent = options(*(f"{scheme}://{nowhere}" for scheme in ("redis", "kafka", "etcd")))
    async with (
        fleet(durable, lightly_loaded, tmp_path, schedulers=0, lease_s=2) as running,
        system(running, absent, 1) as whole,
    ):
        second = running.start(options=absent)
        await running.balanced(2)
        await whole.load.submit()
        slowest = await whole.slowest_s(8)
        killed = await running.now_s()
        await running.kill(second)
        await running.decided(killed + 3)
        assert await whole.connected() == set()
        latest_s = await whole.load.check()
        await whole.scene.uses_all_slots()
        verdict = await running.judge("job-")
    verdict.demand("every engine down", slowest_s=round(slowest, 2), delayed_late_s=round(latest_s, 2))
    assert max(slowest, latest_s) < LATE_S + NOISE_S
