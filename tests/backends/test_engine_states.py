"""Where operators see the engines: the System page, the doctor and the metrics."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
import pytest

from mainspring import backends
from mainspring.alerts.measure import ProcessMeasurements
from mainspring.domain.engines import INSTEAD
from mainspring.embedded.server import EmbeddedServer
from tests.conftest import Cluster, clone, started
from tests.support.engine_servers import KafkaServer, RedisServer
from tests.support.pages import sign_in
from tests.support.processes import until_async

pytestmark = pytest.mark.anyio

NOTE = re.compile(r"no connection to redis \((\w+)\): ([^.;]+)")
LOST = re.compile(r'^mainspring_engine_up\{engine="redis",role="(\w+)"\} 0\.0$', re.MULTILINE)
ROLE = re.compile(r'role="(\w+)"|ENGINE_UP\.(?:labels|remove)\("(\w+)"')


ON_REDIS = ("bus", "cache", "delays", "fire_lock", "rate_limiter")


async def publish_states(cluster: Cluster) -> None:
    """Write the figures of the process, which it does every ten seconds otherwise."""
    (measurements,) = (one for one in cluster.server._services if isinstance(one, ProcessMeasurements))
    await measurements.write()


async def test_a_lost_engine_shows_with_what_replaces_it(postgres: EmbeddedServer, redis: RedisServer) -> None:
    async with (
        started(await clone(postgres), **dict.fromkeys(ON_REDIS, redis.url)) as cluster,
        cluster.client() as client,
        httpx2.AsyncClient(base_url=cluster.url, headers={"sec-fetch-site": "same-origin"}, trust_env=False) as browser,
    ):
        await sign_in(browser, cluster.token)

        async def page_shows(text: str) -> bool:
            await publish_states(cluster)
            return text in (await browser.get("/system")).text

        await until_async("the page has the engines", lambda: page_shows(">connected<"), within_s=40)
        assert not [note for note in (await client.doctor()).notes if "redis" in note]
        redis.kill()
        degraded = "not connected: each api process uses its own cache"
        await until_async("the page has the loss", lambda: page_shows(degraded), within_s=40)
        found: dict[str, str] = {}

        async def all_named() -> bool:
            await publish_states(cluster)
            notes = [note for note in (await client.doctor()).notes if "redis" in note]
            found.update({role: instead for note in notes for role, instead in NOTE.findall(note)})
            return len(found) == len(ON_REDIS)

        await until_async("each connection to see the loss", all_named, within_s=40)
        assert found == {role: INSTEAD[role] for role in ("bus", "cache", "delays", "fire_lock", "rate_limit")}
        async with httpx2.AsyncClient(trust_env=False, headers={"Authorization": f"Bearer {cluster.token}"}) as http:
            lost = LOST.findall((await http.get(f"{cluster.url}/metrics")).text)
        assert set(lost) == found.keys()


def test_every_role_says_what_replaces_its_engine() -> None:
    """The roles are those by which backends export their state."""
    folder = Path(backends.__file__).parent
    roles = {role for file in folder.glob("*.py") for pair in ROLE.findall(file.read_text()) for role in pair if role}
    assert {"bus", "cache", "coordinator", "delays", "fire_lock", "rate_limit", "results"} <= roles <= INSTEAD.keys()


async def test_a_lost_kafka_shows_with_what_replaces_it(postgres: EmbeddedServer, kafka: KafkaServer) -> None:
    async with (
        started(await clone(postgres), results=f"{kafka.url}/states?partitions=1") as cluster,
        cluster.client() as client,
        httpx2.AsyncClient(base_url=cluster.url, headers={"sec-fetch-site": "same-origin"}, trust_env=False) as browser,
    ):
        await sign_in(browser, cluster.token)

        async def page_shows(text: str) -> bool:
            await publish_states(cluster)
            return text in (await browser.get("/system")).text

        await until_async("the page has Kafka", lambda: page_shows(">connected<"), within_s=40)
        assert not [note for note in (await client.doctor()).notes if "kafka" in note]
        kafka.freeze()
        try:
            degraded = "not connected: workers send results to the api"
            await until_async("the page has the loss", lambda: page_shows(degraded), within_s=40)
            notes = [note for note in (await client.doctor()).notes if "kafka" in note]
            assert len(notes) == 1 and "(results): workers send results to the api" in notes[0], notes
        finally:
            kafka.thaw()
        await until_async("the page has Kafka again", lambda: page_shows(">connected<"), within_s=40)
