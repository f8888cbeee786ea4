"""The client names its recent writes in reads, so that any api process shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainspring.api.auth import issue_token
from mainspring.client import AsyncClient
from mainspring.client.own_writes import MOST_NAME, MOST_PROCESSES, RECENT_S, SEEN_AFTER, OwnWrites
from mainspring.embedded.server import EmbeddedServer
from mainspring.store.db import Database
from tests.conftest import clone
from tests.support.api_processes import api_processes
from tests.support.clocks import ManualClock
from tests.support.load_balancer import load_balancer

pytestmark = pytest.mark.anyio


def test_the_latest_write_of_each_process_is_named_for_a_while() -> None:
    clock = ManualClock()
    writes = OwnWrites(clock)
    assert writes.headers(None) is None
    for name in ("a-1", "b-7", "a-2", "", "x" * (MOST_NAME + 1), "\u00fc-1", "c\x7f-1"):
        writes.note(name)
    assert writes.headers({"Accept": "text/plain"}) == {"Accept": "text/plain", SEEN_AFTER: "b-7,a-2"}
    clock.at += RECENT_S / 2
    writes.note("b-8")
    clock.at += RECENT_S / 2
    assert writes.headers(None) == {SEEN_AFTER: "b-8"}
    clock.at += RECENT_S
    assert writes.headers(None) is None
    for n in range(3 * MOST_PROCESSES):
        writes.note(f"{n}-1")
    named = writes.headers(None)
    assert named is not None and named[SEEN_AFTER].split(",") == [f"{n}-1" for n in range(32, 48)]


@pytest.mark.requirement(134)
async def test_a_client_behind_a_load_balancer_reads_its_own_writes(postgres: EmbeddedServer, tmp_path: Path) -> None:
    url = await clone(postgres)
    async with Database(url, size=1) as database, database.connection() as connection:
        token = await issue_token(connection, tenant=1, name="test", scopes=("admin",))
    async with (
        api_processes(tmp_path, url, 2) as urls,
        load_balancer(urls) as address,
        AsyncClient(address, token) as client,
    ):
        await client.create_job({"name": "report", "task": {"kind": "noop"}})
        await client.job("report")
        for n in range(50):
            await client.job("report")  # requests alternate: now both have it
            await client.patch_job("report", {"description": str(n)})
            assert [(await client.job("report")).spec.description for _ in range(2)] == [str(n)] * 2
            made = await client.trigger("report")
            assert made.execution_id in {e.execution_id for e in (await client.job("report")).last}
