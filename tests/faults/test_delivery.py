"""Broken connections between worker and api, by stream and by poll: nothing is lost, and nothing runs twice."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.dispatch import heartbeat
from mainspring.embedded.server import EmbeddedServer
from mainspring.worker import source, stream
from mainspring.worker.transport import delivery
from mainspring.worker.transport.api_client import ApiClient
from tests.conftest import clone, started
from tests.support.api_proxy import ApiProxy, Direction, api_proxy
from tests.support.fleet import ROUNDS
from tests.support.processes import until
from tests.support.recording_worker import Scene, recording, serve

pytestmark = pytest.mark.fault

LEASE_S = 6.0
BYTES = 1600
"""About as many as three executions take in either direction."""
both_ways = pytest.mark.parametrize("streams", [True, False], ids=["stream", "poll"])


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "RETRY_S", 0.05)
    # An answer to a poll that was lost shows in a heartbeat.
    monkeypatch.setattr(heartbeat, "UNKNOWN_AFTER_S", 0.5)


@asynccontextmanager
async def scene(postgres: EmbeddedServer, *, streams: bool) -> AsyncIterator[tuple[Scene, ApiProxy]]:
    async with (
        started(await clone(postgres), session_lease_s=LEASE_S) as cluster,
        cluster.client() as client,
        api_proxy(cluster.url) as proxy,
        recording(client, proxy.url, cluster.worker_token, streams=streams) as found,
    ):
        yield found, proxy


@pytest.mark.fault("F7")
@both_ways
@pytest.mark.parametrize("direction", ["up", "down"])
async def test_connections_cut_in_the_middle_of_messages(
    postgres: EmbeddedServer, streams: bool, direction: Direction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At many bytes. What a stream lost is sent again as the same attempt."""
    monkeypatch.setattr(source, "SHORT_S", 0.0)  # keep opening streams
    step = 97 if ROUNDS == 1 else 7
    offsets = range(1, BYTES, step if streams else 4 * step)  # an answer to a poll that was lost takes a heartbeat
    async with scene(postgres, streams=streams) as (found, proxy):
        await found.succeeded(await found.submit(2))
        for offset in offsets:
            proxy.cut(direction, offset)
            ids = await found.submit(3)
            await found.succeeded(ids, attempts=1 if streams else 2)
        await found.uses_all_slots()
        if streams:
            assert proxy.streams > 3, "streams were cut"


@pytest.mark.fault("F5")
@both_ways
async def test_an_api_process_that_is_killed_and_started_again(
    postgres: EmbeddedServer, tmp_path: Path, streams: bool
) -> None:
    async with (
        serve(await clone(postgres), tmp_path, lease_s=20.0) as server,
        AsyncClient(server.url, server.token) as client,
        recording(client, server.url, server.worker_token, streams=streams) as found,
    ):
        for _ in range(ROUNDS):
            await found.succeeded(await found.submit(2))
            found.recorder.gate.clear()
            ids = await found.submit(found.slots + 3)
            await until("every slot in use", lambda: found.recorder.staying == found.slots, within_s=30)
            server.send(signal.SIGKILL)
            await server.ended()
            found.recorder.gate.set()  # their results find no api
            await until("the end of those", lambda: found.worker.busy == 0, within_s=30)
            await server.start()
            await found.succeeded(ids)
            await found.uses_all_slots()


@both_ways
async def test_an_api_process_that_stands_still(postgres: EmbeddedServer, tmp_path: Path, streams: bool) -> None:
    async with (
        serve(await clone(postgres), tmp_path, lease_s=20.0) as server,
        AsyncClient(server.url, server.token) as client,
        recording(client, server.url, server.worker_token, streams=streams) as found,
    ):
        found.recorder.gate.clear()
        ids = await found.submit(found.slots + 2)
        await until("every slot in use", lambda: found.recorder.staying == found.slots, within_s=30)
        server.send(signal.SIGSTOP)
        found.recorder.gate.set()
        await until("the end of those", lambda: found.worker.busy == 0, within_s=30)
        with structlog.testing.capture_logs() as logs:
            await until("a heartbeat without an answer", lambda: "heartbeat.failed" in events(logs), within_s=60)
        server.send(signal.SIGCONT)
        await found.succeeded(ids)
        await found.uses_all_slots()


@pytest.mark.fault("F6")
@both_ways
async def test_a_worker_whose_event_loop_is_blocked_keeps_its_lease(
    postgres: EmbeddedServer, tmp_path: Path, streams: bool
) -> None:
    """The heartbeat thread sends on a connection of its own."""
    lease_s = 4.0
    async with (
        serve(await clone(postgres), tmp_path, lease_s=lease_s) as server,
        AsyncClient(server.url, server.token) as client,
        recording(client, server.url, server.worker_token, streams=streams) as found,
    ):
        await found.succeeded(await found.submit(1))
        found.recorder.blocks_s = 1.5 * lease_s
        await found.succeeded(await found.submit(1))
        await found.uses_all_slots()
        assert len((await client.workers()).items) == 1, "one session throughout"


@pytest.mark.fault("F7")
@both_ways
async def test_a_network_that_swallows_everything_for_a_while(
    postgres: EmbeddedServer, streams: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections from before stay silent; a stream is given up and opened again."""
    monkeypatch.setattr(stream, "PING_S", 0.2)
    async with scene(postgres, streams=streams) as (found, proxy):
        await found.succeeded(await found.submit(2))
        found.recorder.gate.clear()
        ids = await found.submit(2)
        await until("two running", lambda: found.recorder.staying == 2, within_s=30)
        proxy.swallow()
        ids += await found.submit(2)
        if streams:
            proxy.strand()
            # A result sent before that would wait for the response timeout of a request on a stranded connection.
            with structlog.testing.capture_logs() as logs:
                await until("the next stream", lambda: "stream.opened" in events(logs), within_s=30)
        else:
            await until("data that is kept back", lambda: proxy.kept > 0, within_s=30)
            proxy.heal()
        found.recorder.gate.set()
        await found.succeeded(ids)
        await found.uses_all_slots()
        proxy.break_all()  # or the worker's last requests would wait on stranded connections


HOLDS: dict[str, Direction] = {"request held back": "up", "response held back": "down"}


@pytest.mark.parametrize("fault", [*HOLDS, "reset"])
async def test_proxies_that_do_not_pass_streams_on(
    postgres: EmbeddedServer, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker polls, says so in its log, and tries a stream again later."""
    monkeypatch.setattr(stream, "OPEN_S", 0.3)
    monkeypatch.setattr(source, "FIRST_POLLING_S", 1.0)
    monkeypatch.setattr(source, "POLLING_S", 1.0)
    async with (
        started(await clone(postgres), session_lease_s=LEASE_S) as cluster,
        cluster.client() as client,
        api_proxy(cluster.url) as proxy,
    ):
        proxy.resets = fault == "reset"
        proxy.holds = HOLDS.get(fault)
        with structlog.testing.capture_logs() as logs:
            async with recording(client, proxy.url, cluster.worker_token, streams=True) as found:
                ids = await found.submit(4)
                await until("polls", lambda: "stream.polling" in events(logs), within_s=30)
                tries = source.SHORT_STREAMS if fault == "reset" else 1
                assert proxy.streams == tries
                await found.succeeded(ids + await found.submit(4))
                await found.uses_all_slots()
                proxy.resets, proxy.holds = False, None
                await until("a stream", lambda: "stream.opened" in events(logs), within_s=30)
                await found.succeeded(await found.submit(4))
                await found.uses_all_slots()
        (polling, *_) = [entry for entry in logs if entry["event"] == "stream.polling"]
        assert polling["reason"] and polling["retry_s"] == 1.0 and polling["log_level"] == "warning"


def events(logs: list[Any]) -> list[str]:
    return [entry["event"] for entry in logs]


@both_ways
async def test_a_slow_network(postgres: EmbeddedServer, streams: bool) -> None:
    async with scene(postgres, streams=streams) as (found, proxy):
        proxy.delay_s = 0.02
        await found.succeeded(await found.submit(20))
        await found.uses_all_slots()


async def test_an_api_that_offers_no_streams(postgres: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of an older version."""
    register = ApiClient.register

    async def older(self: ApiClient, body: wire.Register) -> wire.Registered:
        registered = await register(self, body)
        registered.takes.remove("stream")
        return registered

    monkeypatch.setattr(ApiClient, "register", older)
    async with scene(postgres, streams=True) as (found, proxy):
        await found.succeeded(await found.submit(8))
        await found.uses_all_slots()
        assert proxy.streams == 0


@both_ways
async def test_an_api_that_drains_hands_its_workers_on(postgres: EmbeddedServer, tmp_path: Path, streams: bool) -> None:
    """It ends while they are busy, and another one takes its place at the same address."""
    async with (
        serve(await clone(postgres), tmp_path, lease_s=20.0) as server,
        AsyncClient(server.url, server.token) as client,
        recording(client, server.url, server.worker_token, streams=streams) as found,
    ):
        found.recorder.gate.clear()
        ids = await found.submit(found.slots + 2)
        await until("every slot in use", lambda: found.recorder.staying == found.slots, within_s=30)
        server.send(signal.SIGTERM)
        await server.ended()
        assert server.process is not None and server.process.returncode == os.EX_OK
        found.recorder.gate.set()
        await server.start()
        await found.succeeded(ids)
        await found.uses_all_slots()
