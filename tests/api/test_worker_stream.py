"""The worker stream as an endpoint: who may open it, and what it does with messages that are wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
import structlog

from mainspring import wire
from mainspring.api import auth, worker_stream
from mainspring.api.workers import settle_results
from mainspring.client import AsyncClient
from mainspring.codec import encode
from tests.conftest import Cluster
from tests.support.api_tokens import Issue
from tests.support.processes import until
from tests.support.remote_stream import RemoteStream, request, stream_of, streaming
from tests.support.remote_worker import Remote, remote

NOBODY = UUID(int=0)


@pytest.fixture
def queue() -> str:
    return f"q{uuid4().hex}"


@pytest.fixture
async def opened(cluster: Cluster, queue: str) -> AsyncIterator[tuple[AsyncClient, Remote, RemoteStream]]:
    async with streaming(cluster, queue, free=4) as opened:
        yield opened


async def trigger(client: AsyncClient, queue: str, count: int = 1) -> list[UUID]:
    await client.create_job({"name": queue, "task": {"kind": "noop"}, "queue": queue, "retries": {"max": 0}})
    return [(await client.trigger(queue)).execution_id for _ in range(count)]


# Opening -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        (b'{"type":"ping","number":1}', "protocol", "the first message must be `open`"),
        (b'{"type":"teleport"}', "invalid", "teleport"),
        (b"hello", "not_json", "the body is not JSON"),
        (
            b'{"type":"open","session_id":"x","capacity":{"type":"capacity","received":0,"free":1}}',
            "invalid",
            "session_id",
        ),
        (b'{"type":"open","colour":"red"}', "invalid", "colour"),
        (b'{"type":"open","capacity":{"type":"capacity","received":0,"free":-1}}', "invalid", "free"),
        (b'{"a":' * 40 + b"1" + b"}" * 40, "too_deep", "32 levels"),
    ],
)
async def test_a_first_message_that_does_not_open_is_answered_with_the_reason(
    cluster: Cluster, line: bytes, code: str, text: str
) -> None:
    async with request(cluster.url, cluster.worker_token, NOBODY) as stream:
        await stream.write(line)
        await stream.end()
        assert (stream.status, stream.problem["code"]) == (400 if code in ("not_json", "too_deep") else 422, code)
        assert text in stream.problem["detail"]


async def test_a_stream_without_any_message_is_answered(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_stream, "OPEN_S", 0.1)
    async with request(cluster.url, cluster.worker_token, NOBODY) as stream:
        await stream.end()
        assert "send `open` first" in stream.problem["detail"]
    async with request(cluster.url, cluster.worker_token, NOBODY) as stream:
        stream.writer.write(b"0\r\n\r\n")
        await stream.end()
        assert stream.problem["detail"] == "the first message must be `open`"


async def test_other_protocol_versions_are_refused(cluster: Cluster) -> None:
    async with request(cluster.url, cluster.worker_token, NOBODY, protocol="99") as stream:
        await stream.end()
        assert stream.problem["code"] == "protocol" and "99" in stream.problem["detail"]


@pytest.mark.parametrize("scopes", [("read",), ("read", "execute")])
async def test_a_token_without_the_worker_scope_is_refused(
    cluster: Cluster, issue: Issue, scopes: tuple[str, ...]
) -> None:
    async with stream_of(cluster, NOBODY, token=await issue(*scopes)) as stream:
        assert stream.status == 403 and "worker" in stream.problem["detail"]
    async with stream_of(cluster, NOBODY, token="ms_wrong") as stream:
        assert stream.status == 401


async def test_a_session_of_another_tenant_is_refused(cluster: Cluster, queue: str, issue: Issue) -> None:
    async with cluster.database.connection() as connection:
        tenant = await connection.fetchval(
            "INSERT INTO tenants (name) VALUES ('n-' || gen_random_uuid()) RETURNING tenant_id"
        )
    async with streaming(cluster, queue, free=1) as (client, worker, own):
        async with stream_of(cluster, worker.session_id, free=1, token=await issue("worker", tenant=tenant)) as stream:
            assert (stream.status, stream.problem["code"]) == (409, "session_ended")
        (execution,) = await trigger(client, queue)
        await own.received(1)
        assert own.ids == [execution] and not own.ended


async def test_a_revoked_token_renews_no_lease(
    cluster: Cluster, queue: str, issue: Issue, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await issue("worker")
    async with (
        cluster.database.connection() as connection,
        remote(cluster, queue=queue, token=token) as worker,
        stream_of(cluster, worker.session_id, free=1, token=token) as stream,
    ):
        assert (await stream.beat())["lease_s"] > 0
        revoke = "UPDATE tokens SET revoked_at = $1 WHERE name = 'test (''worker'',)'"
        await connection.execute(revoke, datetime.now(UTC))
        monkeypatch.setattr(auth, "TOKEN_CACHE_S", 0.0)
        refused = await stream.beat()
        assert isinstance(refused, wire.Rejected) and refused.status == 401, refused
        await connection.execute(revoke, None)  # its worker says goodbye


# Messages that are wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "detail"),
    [
        (b'{"type":"results","number":7,"results":"none"}', "results"),
        (b'{"type":"results","number":7,"results":[],"colour":"red"}', "colour"),
        (b'{"type":"heartbeat","number":7}', "running"),
        (b'{"type":"teleport","number":7}', "teleport"),
        (b'{"number":7}', "type"),
        (b'{"type":"ping","number":7,"x":"\\u0000"}', "x"),
        (b'{"type":"results","number":7,"results":[["%s",1,"failed",1,0,"\\u0000"]]}' % str(NOBODY).encode(), "NUL"),
        (b'{"type":"results","number":7,"results":[],"a":' + b"[" * 40 + b"]" * 40 + b"}", "32 levels"),
        (b'{"type":"results","number":7,"results":[["%s",1,"exploded",1]]}' % str(NOBODY).encode(), "exploded"),
    ],
)
async def test_a_message_that_is_wrong_is_rejected_by_its_number_and_nothing_else(
    opened: tuple[AsyncClient, Remote, RemoteStream], queue: str, message: bytes, detail: str
) -> None:
    client, _, stream = opened
    await stream.write(message)
    rejected = await stream.answer(7)
    assert isinstance(rejected, wire.Rejected), rejected
    assert rejected.status in (400, 422) and detail in rejected.detail
    (execution,) = await trigger(client, queue)
    assert await stream.settle(*await stream.received(1)) == []
    assert (await client.execution(execution)).state == "succeeded"


@pytest.mark.parametrize(
    "line",
    [
        b"hello",
        b"",
        b'{"type":"results","results":[]}',
        b'{"type":"capacity","received":0,"free":1,"colour":"red"}',
        b'{"type":"ping","number":"seven"}',
        b"[" * 100_000,
        b'{"type":"ping","number":1,"x":' + b"[" * 100_000,
        b"\xff\xfe",
        pytest.param(b'{"type":"ping","number":' + b"9" * 5000 + b"}", id="long number"),
        pytest.param(b'"' + b"x" * (wire.MAX_LINE_BYTES + 1) + b'"', id="too large"),
    ],
)
async def test_a_message_that_can_not_be_answered_ends_its_stream_and_no_other(
    cluster: Cluster, queue: str, line: bytes
) -> None:
    """The log says why."""
    async with streaming(cluster, queue, free=1) as (client, _, good), remote(cluster, queue="other") as worker:
        async with stream_of(cluster, worker.session_id, free=1) as bad:
            with structlog.testing.capture_logs() as logs:
                await bad.write(line)
                await bad.end()
        (ended,) = [entry for entry in logs if entry["event"] == "stream.ended"]
        assert ended["session"] == str(worker.session_id) and ended["error"]
        assert ended["log_level"] == "warning"
        (execution,) = await trigger(client, queue)
        await good.settle(*await good.received(1))
        assert (await client.execution(execution)).state == "succeeded"


async def test_a_second_open_ends_the_stream(opened: tuple[AsyncClient, Remote, RemoteStream]) -> None:
    _, worker, stream = opened
    capacity = wire.Capacity(received=0, free=1)
    with structlog.testing.capture_logs() as logs:
        await stream.write(encode(wire.OpenStream(session_id=worker.session_id, capacity=capacity)))
        await stream.end()
    assert [entry["error"] for entry in logs if entry["event"] == "stream.ended"] == ["the stream is already open"]


async def test_messages_may_arrive_in_any_pieces(opened: tuple[AsyncClient, Remote, RemoteStream], queue: str) -> None:
    """Byte by byte, and many lines in one chunk."""
    _, _, stream = opened
    for byte in b'{"type":"ping","number":1}\n':
        stream.writer.write(b"1\r\n%c\r\n" % byte)
        await stream.writer.drain()
    assert await stream.answer(1) is None
    lines = b"".join(b'{"type":"ping","number":%d}\n' % n for n in range(2, 102))
    stream.writer.write(b"%x\r\n%b\r\n" % (len(lines), lines))
    for number in range(2, 102):
        assert await stream.answer(number) is None


# Answers -------------------------------------------------------------------------------------------------


async def test_results_are_settled_and_answered_by_number(
    opened: tuple[AsyncClient, Remote, RemoteStream], queue: str
) -> None:
    client, _, stream = opened
    ids = await trigger(client, queue, 3)
    first, second, third = await stream.received(3)
    assert await stream.settle(first, output=b"hello\n") == []
    assert await stream.settle(second, outcome="failed") == []
    assert await stream.settle(third, first) == [str(first.execution_id)], "a second report is stale"
    assert sorted(stream.answers) == [1, 2, 3]
    assert [(await client.execution(e)).state for e in ids] == ["succeeded", "failed", "succeeded"]
    assert "".join(chunk.text for chunk in (await client.logs(ids[0])).chunks) == "hello\n"


async def test_no_more_messages_are_worked_on_at_once_than_may_be(
    cluster: Cluster, opened: tuple[AsyncClient, Remote, RemoteStream], queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one is read when one of them is answered; none is lost, and slow ones do not hold up a ping before."""
    begun, most, go_on = 0, asyncio.Event(), asyncio.Event()

    async def slowly(*args: Any, **given: Any) -> wire.Settled:
        nonlocal begun
        begun += 1
        if begun == worker_stream.MAX_UNANSWERED:
            most.set()
        await go_on.wait()
        return await settle_results(*args, **given)

    monkeypatch.setattr(worker_stream, "settle_results", slowly)
    _, _, stream = opened
    count = 3 * worker_stream.MAX_UNANSWERED
    for number in range(1, count + 1):
        await stream.write(encode(wire.ReportResults(number=number, results=[])))
    await asyncio.wait_for(most.wait(), 10)
    async with cluster.client() as client:
        await client.workers()  # the api has had time to read on
    assert begun == worker_stream.MAX_UNANSWERED and not stream.answers
    go_on.set()
    for number in range(1, count + 1):
        assert await stream.answer(number) == {"stale": []}
    assert begun == count


async def test_a_worker_that_never_reads_is_not_read_either(
    cluster: Cluster, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers to it take little memory, and its connection is given up when the stream is closed."""
    monkeypatch.setattr(worker_stream, "CLOSE_S", 0.1)
    responses: list[worker_stream.StreamResponse] = []
    real = worker_stream.StreamResponse.__init__

    def keep(self: worker_stream.StreamResponse, *given: Any) -> None:
        responses.append(self)
        real(self, *given)

    monkeypatch.setattr(worker_stream.StreamResponse, "__init__", keep)
    async with (
        remote(cluster, queue=queue) as worker,
        request(cluster.url, cluster.worker_token, worker.session_id) as stream,
    ):
        stream.reader._transport.pause_reading()  # type: ignore[attr-defined]
        capacity = wire.Capacity(received=0, free=0)
        await stream.write(encode(wire.OpenStream(session_id=worker.session_id, capacity=capacity)))
        flooding = asyncio.create_task(flood(stream))
        await until(
            "full buffers",
            lambda: bool(responses) and responses[0]._outgoing_bytes > worker_stream.MAX_OUTGOING_BYTES,
            within_s=30,
        )
        with structlog.testing.capture_logs() as logs:
            await worker.goodbye()
            await until("its end", lambda: any(e["event"] == "stream.given_up" for e in logs), within_s=10)
        assert responses[0]._outgoing_bytes < 2 * worker_stream.MAX_OUTGOING_BYTES
        flooding.cancel()


async def flood(stream: RemoteStream) -> None:
    """Send messages whose rejections are as long as they are."""
    while True:
        await stream.write(b'{"number":1,"type":"%b"}' % (b"x" * 20_000))
