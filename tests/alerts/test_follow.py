"""Events before the end of an execution: written only while they are wanted, in order, over every way to the state."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from mainspring import wire
from mainspring.alerts.follow import ExecutionFollower
from mainspring.client import AsyncClient
from mainspring.domain.channel import WebhookTarget
from mainspring.domain.events import SUBSCRIBED
from mainspring.store.db import Database
from tests.conftest import Cluster, started
from tests.support.database_roles import server_urls
from tests.support.http_receiver import Receiver, receiving, reply
from tests.support.processes import until, until_async
from tests.support.remote_worker import remote
from tests.support.silent_bus import SilentBus

pytestmark = pytest.mark.anyio

STARTS = ["execution.created", "execution.queued", "execution.started", "execution.skipped"]
TRIGGERS = """
SELECT tgname, tgenabled <> 'D' FROM pg_trigger
WHERE tgname IN ('executions_created', 'executions_changed', 'history_skipped')
"""


async def enabled(database: Database) -> set[bool]:
    async with database.connection() as connection:
        rows = await connection.fetch(TRIGGERS)
    assert len(rows) == 3
    return {bool(row[1]) for row in rows}


async def written(database: Database) -> int:
    async with database.connection() as connection:
        return int(
            await connection.fetchval("SELECT (SELECT count(*) FROM outbox) + (SELECT count(*) FROM event_outbox)")
        )


def by_execution(hook: Receiver) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for received in hook.got:
        body = json.loads(received.body)
        found[body["data"]["execution_id"]].append(body["type"].removeprefix("execution."))
    return found


async def subscribe(client: AsyncClient, hook: Receiver, events: list[str], **more: Any) -> None:
    target = WebhookTarget(hook.url("/hook"))
    await client.add_channel(wire.NewChannel(name="hook", target=target, events=events, **more))


async def finish(cluster: Cluster, client: AsyncClient, job: str) -> str:
    """Queue an execution, run it with one retry, and return its id."""
    made = str((await client.trigger(job)).execution_id)
    async with remote(cluster) as worker:
        for outcome in ("failed", "succeeded"):
            (given,) = (await worker.poll()).executions
            await worker.tell(given, outcome=outcome)
    return made


async def test_a_channel_gets_the_whole_life_of_its_jobs_while_it_wants_it(fresh: Database) -> None:
    """As in production: the role of the server owns nothing."""
    config = {**server_urls(fresh.dsn), "allow_net": ("127.0.0.0/8",)}
    async with (
        receiving(lambda _: reply()) as hook,
        started(fresh.dsn, **config) as cluster,
        cluster.client() as client,
    ):
        for name in ("mine", "other"):
            await client.create_job({"name": name, "task": {"kind": "noop"}, "retries": {"max": 1, "base": "1ms"}})
        await finish(cluster, client, "mine")
        assert await enabled(fresh) == {False} and await written(fresh) == 0, "without a subscriber"

        await subscribe(client, hook, [*STARTS, "execution.retrying", "execution.succeeded"], jobs=["min*"])

        async def follows() -> bool:
            return await enabled(fresh) == {True}

        await until_async("the triggers to be enabled", follows, within_s=30)
        await finish(cluster, client, "other")
        ran = await finish(cluster, client, "mine")
        life = ["created", "queued", "started", "queued", "retrying", "started", "succeeded"]
        await until("every event to arrive", lambda: len(by_execution(hook).get(ran, [])) >= len(life), within_s=30)
        found = by_execution(hook)
        assert found.keys() == {ran}, "no other job"
        assert sorted(found[ran]) == sorted(life)
        order = [event for event in found[ran] if event != "retrying"]
        assert order == ["created", "queued", "started", "queued", "started", "succeeded"]
        assert found[ran].index("retrying") > 2

        await client.delete_channel("hook")

        async def no_more() -> bool:
            return await enabled(fresh) == {False}

        await until_async("the triggers to be disabled", no_more, within_s=30)
        before = await written(fresh)
        await finish(cluster, client, "mine")
        assert await written(fresh) == before


async def test_direct_handoff_and_skipped_fires(fresh: Database) -> None:
    follower = ExecutionFollower(fresh, SilentBus(), leads=lambda: True)
    async with (
        receiving(lambda _: reply()) as hook,
        started(fresh.dsn, allow_net=("127.0.0.0/8",)) as cluster,
        cluster.client() as client,
    ):
        await subscribe(client, hook, STARTS)
        assert await follower.follow() and await enabled(fresh) == {True}
        await client.create_job({"name": "direct", "task": {"kind": "noop"}})
        async with cluster.worker():
            await client.wait((await client.trigger("direct")).execution_id)  # the dispatcher learns of the line
            made = await client.trigger("direct")
            await client.wait(made.execution_id)
        direct = str(made.execution_id)
        await until("both events", lambda: len(by_execution(hook).get(direct, [])) == 2, within_s=30)
        assert by_execution(hook)[direct] == ["created", "started"], "it was never queued"
        schedule = {"every": "1s"}
        await client.create_job({"name": "blocked", "task": {"kind": "noop"}, "schedule": schedule})
        await until("a skipped fire", lambda: ["skipped"] in by_execution(hook).values(), within_s=30)


async def test_a_change_waits_for_no_lock(fresh: Database) -> None:
    """Statements on executions must not queue behind it: it gives up, and is tried again."""
    follower = ExecutionFollower(fresh, SilentBus(), leads=lambda: True)
    async with fresh.connection() as busy, fresh.connection() as connection:
        await connection.execute(
            "INSERT INTO event_stream (wanted_until, all_until)"
            " VALUES (db_now() + interval '1 hour', db_now() + interval '1 hour')"
        )
        async with busy.transaction():
            await busy.execute("LOCK TABLE executions IN ROW EXCLUSIVE MODE")
            assert not await follower.follow()
            assert await enabled(fresh) == {False}
        assert await follower.follow() and await enabled(fresh) == {True}
        await connection.execute("UPDATE event_stream SET all_until = db_now()")
        assert await follower.follow() and await enabled(fresh) == {False}


def test_every_lifecycle_event_but_due_can_be_subscribed_to() -> None:
    assert set(STARTS) <= SUBSCRIBED.keys() and "execution.due" not in SUBSCRIBED
