"""A crash loop: server, database and worker are killed while clients write. What was acknowledged is there
afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from mainspring import wire
from mainspring.domain.errors import MainspringError
from mainspring.http_client.errors import HttpError
from tests.support.evidence import SCRIPT, check, lines
from tests.support.figures import record
from tests.support.fleet import ROUNDS
from tests.support.processes import Dev, dev, until
from tests.support.tcp_proxy import later

pytestmark = pytest.mark.anyio

PARTS = ("mainspring.cli.main serve", "postgres", "mainspring.cli.main worker")
BETWEEN = 20
"""Acknowledged writes between two kills."""
ROWS = "SELECT e.execution_id, e.params FROM all_executions e JOIN jobs j USING (job_id) WHERE j.name = 'kept'"
LOST = "SELECT execution_id, attempt FROM attempts WHERE outcome = 'lost'"


async def write(running: Dev, acknowledged: dict[str, str], done: asyncio.Event) -> None:
    """Submit until told to stop; record what the api has acknowledged, with its content."""
    n = 0
    while not done.is_set():
        with contextlib.suppress(MainspringError, HttpError, OSError, TimeoutError):
            async with running.client() as client:
                while not done.is_set():
                    items = [wire.BatchItem(job="kept", params={"n": n + i, "text": "x" * (n % 97)}) for i in range(3)]
                    n += len(items)
                    answer = await client.submit(items)
                    for item, made in zip(items, answer.items, strict=True):
                        assert made.execution_id is not None
                        acknowledged[str(made.execution_id)] = content(item.params)
        await later(0.05)


def content(params: Any) -> str:
    return json.dumps(params, sort_keys=True)


@pytest.mark.fault("F3", "F5", "F9")
@pytest.mark.requirement(44)
async def test_acknowledged_writes_outlive_a_crash_loop(tmp_path: Path) -> None:
    evidence = tmp_path / "evidence"
    script = SCRIPT.format(file=evidence, work="true")
    acknowledged: dict[str, str] = {}
    async with dev(tmp_path, "--slots", "8") as running:
        async with running.client() as client:
            await client.create_job({"name": "kept", "task": {"kind": "shell", "argv": [script], "shell": True}})
        done = asyncio.Event()
        writer = asyncio.create_task(write(running, acknowledged, done))
        for part in PARTS * ROUNDS:
            await grows(acknowledged, f"writes before the kill of {part}")
            await running.kill(part)
        await grows(acknowledged, "writes after the last kill")
        done.set()
        await writer
        rows, killed = await read_when_idle(running)
    found = {str(row["execution_id"]): content(json.loads(row["params"])) for row in rows}
    offences = check(lines(evidence.read_text()), found, acknowledged, killed=killed)
    record(
        "crash loop",
        kills=len(PARTS) * ROUNDS,
        acknowledged=len(acknowledged),
        lost=len(offences.lost),
        attempts_lost=len(killed),
    )
    assert offences.none, offences
    assert {line.execution for line in lines(evidence.read_text())} >= acknowledged.keys(), "and each was executed"


async def grows(acknowledged: dict[str, str], what: str) -> None:
    target = len(acknowledged) + BETWEEN
    await until(what, lambda: len(acknowledged) >= target, within_s=90)


async def read_when_idle(running: Dev) -> tuple[list[Any], frozenset[tuple[str, int]]]:
    connection = await asyncpg.connect(running.database_url, server_settings={"search_path": "mainspring"})
    try:
        async with asyncio.timeout(120):
            while await connection.fetchval("SELECT count(*) FROM executions"):
                await connection.execute("SELECT pg_sleep(0.1)")
        killed = frozenset((str(r["execution_id"]), r["attempt"]) for r in await connection.fetch(LOST))
        return list(await connection.fetch(ROWS)), killed
    finally:
        await connection.close()
