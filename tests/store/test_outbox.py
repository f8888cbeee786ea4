"""Messages are taken under a lease, in order per stream, and only the current try is recorded."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from mainspring.store import channels, outbox
from mainspring.store.channels import StoredTarget
from mainspring.store.db import Connection
from mainspring.store.outbox import FIRST_STREAM, Message, Sent
from mainspring.store.secret_fields import SecretFields
from mainspring.testing.clock import START, VirtualClock
from tests.support.settling import TENANT, SettlingBench

OK = Sent(200, "ok", 5)
REFUSED = Sent(500, "no", 5, "HTTP 500")


async def pending(connection: Connection, count: int = 1) -> list[int]:
    """Messages of one stream of one channel."""
    await channels.insert_channel(
        connection,
        tenant=TENANT,
        target=StoredTarget(uuid4(), TENANT, "hook", "webhook", {"url": "http://localhost/"}, SecretFields({})),
        events=["alert.firing"],
        jobs=[],
        by="test",
    )
    for _ in range(count):
        await outbox.notify_alert(
            connection,
            tenant=TENANT,
            event_id=uuid4(),
            event="alert.firing",
            stream="alert",
            body={},
            channels=[],
            job=None,
            received=None,
        )
    return [r["message_id"] for r in await connection.fetch("SELECT message_id FROM outbox ORDER BY message_id")]


async def take(connection: Connection, *ids: int) -> list[Message]:
    return await outbox.take_messages(connection, message_ids=ids, lease_s=30)


async def states(connection: Connection) -> list[str]:
    deliveries = await outbox.list_deliveries(connection, tenant=TENANT, before=1 << 60, limit=10)
    return [delivery.state for delivery in reversed(deliveries)]


async def test_a_message_is_taken_once_per_lease_and_in_order(bench: SettlingBench, virtual: VirtualClock) -> None:
    async with bench.database.connection() as connection:
        first, second = await pending(connection, 2)
        assert [m.message_id for m in await take(connection, first, second)] == [first]
        assert await take(connection, first, second) == [], "leased, and the second waits for the first"
        await virtual.advance(seconds=31)
        (again,) = await take(connection, first)
        assert again.tries == 2
        await outbox.message_sent(connection, message=again, sent=OK)
        assert [m.message_id for m in await take(connection, first, second)] == [second]


async def test_the_result_of_an_outdated_try_is_ignored(bench: SettlingBench, virtual: VirtualClock) -> None:
    async with bench.database.connection() as connection:
        (message_id,) = await pending(connection)
        (old,) = await take(connection, message_id)
        await virtual.advance(seconds=31)
        (current,) = await take(connection, message_id)
        await outbox.message_sent(connection, message=old, sent=OK)
        await outbox.message_failed(connection, message=old, sent=REFUSED, retry_s=5, give_up_s=0)
        assert await states(connection) == ["pending"]
        await outbox.message_sent(connection, message=current, sent=OK)
        assert await states(connection) == ["sent"]
        await outbox.message_failed(connection, message=current, sent=REFUSED, retry_s=5, give_up_s=0)
        assert await states(connection) == ["sent"], "a delivered message stays delivered"


async def test_a_refused_message_is_retried_and_dropped_when_it_is_too_old(
    bench: SettlingBench, virtual: VirtualClock
) -> None:
    async with bench.database.connection() as connection:
        (message_id,) = await pending(connection)
        (message,) = await take(connection, message_id)
        await outbox.message_failed(connection, message=message, sent=REFUSED, retry_s=60, give_up_s=3600)
        assert await take(connection, message_id) == []
        (head,) = await outbox.pending_heads(connection, after=FIRST_STREAM, limit=10)
        assert (head.message_id, head.wait_s) == (message_id, 60)
        await virtual.advance(seconds=60)
        (message,) = await take(connection, message_id)
        await outbox.message_failed(connection, message=message, sent=REFUSED, retry_s=60, give_up_s=30)
        assert await states(connection) == ["dropped"]


async def test_a_held_message_waits_without_counting_a_try(bench: SettlingBench, virtual: VirtualClock) -> None:
    async with bench.database.connection() as connection:
        (message_id,) = await pending(connection)
        (message,) = await take(connection, message_id)
        await outbox.hold_message(connection, message=message, until=START + timedelta(hours=1))
        assert await take(connection, message_id) == []
        await virtual.advance(hours=1)
        (message,) = await take(connection, message_id)
        assert message.tries == 1


async def test_a_channel_is_disabled_after_it_has_failed_for_too_long(
    bench: SettlingBench, virtual: VirtualClock
) -> None:
    async with bench.database.connection() as connection:
        (message_id,) = await pending(connection)
        (message,) = await take(connection, message_id)
        await outbox.message_failed(connection, message=message, sent=REFUSED, retry_s=1, give_up_s=3600)
        await virtual.advance(seconds=60)
        assert await outbox.disable_failing(connection, longer_than_s=61) == []
        assert await outbox.disable_failing(connection, longer_than_s=59) == [("hook", "HTTP 500")]
        assert await states(connection) == ["dropped"] and await take(connection, message_id) == []
