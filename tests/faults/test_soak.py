"""A soak: three schedulers, four workers and two api processes under load, harmed at random for a given time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mainspring import wire
from mainspring.api.auth import issue_token
from mainspring.client import AsyncClient
from mainspring.domain.errors import MainspringError
from mainspring.domain.grants import EVERYTHING
from mainspring.embedded.server import EmbeddedServer
from mainspring.http_client.errors import HttpError
from mainspring.store.db import Database
from tests.support.evidence import SCRIPT, check, lines
from tests.support.fleet import Fleet
from tests.support.seeds import SEED
from tests.support.soak_topology import SHARD_LEASE_S, Topology, topology
from tests.support.tcp_proxy import later

SECONDS = float(os.environ.get("SOAK_SECONDS", "0"))
pytestmark = [pytest.mark.fault, pytest.mark.skipif(not SECONDS, reason="`make faults` and `make soak` only")]

EXECUTIONS = "SELECT execution_id, params, j.name, e.fire_at FROM all_executions e JOIN jobs j USING (job_id)"
KILLED = "SELECT execution_id, attempt FROM attempts WHERE outcome <> 'succeeded'"
SUCCEEDED = (
    "SELECT a.execution_id, a.attempt FROM attempts a JOIN all_executions e USING (execution_id)"
    " JOIN jobs j USING (job_id) WHERE a.outcome = 'succeeded' AND (j.name = 'kept' OR j.name LIKE '%-shell')"
)
REPLACED = (
    "SELECT count(*) FROM attempts a WHERE a.outcome = 'succeeded' AND EXISTS (SELECT FROM attempts later"
    " WHERE later.execution_id = a.execution_id AND later.attempt > a.attempt)"
)
OWNED = "SELECT count(owner) = 64 AND count(DISTINCT owner) = 3 FROM shards"
IDLE = (
    "SELECT NOT EXISTS (SELECT FROM executions e JOIN jobs j USING (job_id)"
    " WHERE e.fire_at < to_timestamp($1) AND e.state <> 'blocked')"
)


def specs(file: Path) -> list[dict[str, Any]]:
    """Jobs on round seconds, as the checker of fires reads them from their names, and one for the clients."""

    def shell(work: str) -> dict[str, Any]:
        return {"kind": "shell", "argv": [SCRIPT.format(file=file, work=work)], "shell": True}

    every = {"overlap": "allow", "misfire": {"policy": "all"}}
    retries = {"max": 10, "base": "100ms", "cap": "1s"}
    return [
        *[
            {"name": f"job-{s}-{n}", "task": {"kind": "noop"}, "schedule": {"every": s, "aligned": True}, **every}
            for s in (1, 2, 3)
            for n in range(8)
        ],
        *[
            {
                "name": f"job-{s}-shell",
                "task": shell("sleep 1"),
                "schedule": {"every": s, "aligned": True},
                "retries": retries,
                **every,
            }
            for s in (2, 3)
        ],
        {
            "name": "job-3-once-shell",
            "task": shell("sleep 1"),
            "schedule": {"every": 3, "aligned": True},
            "delivery": "at_most_once",
            "retries": {"max": 0},
            **every,
        },
        {"name": "kept", "task": shell("true"), "retries": retries},
    ]


async def write(urls: list[str], token: str, acknowledged: dict[str, str], done: asyncio.Event) -> None:
    """Submit to one api process after another; record what was acknowledged, with its content."""
    numbers = itertools.count()
    for url in itertools.cycle(urls):
        with contextlib.suppress(MainspringError, HttpError, OSError, TimeoutError):
            async with AsyncClient(url, token) as client, asyncio.timeout(10):
                while not done.is_set():
                    item = wire.BatchItem(job="kept", params={"n": next(numbers)})
                    (made,) = (await client.submit([item])).items
                    assert made.execution_id is not None
                    acknowledged[str(made.execution_id)] = json.dumps(item.params, sort_keys=True)
                    await later(0.3)
        if done.is_set():
            return


async def harm(running: Topology, random: Random, seconds: float) -> Counter[str]:
    """Cause one fault after another, sometimes two at once, until the time is over; count them."""
    caused: Counter[str] = Counter()
    ends = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < ends:
        drawn = [running.draw(random) for _ in range(random.choice((1, 1, 2)))]
        chosen = {part.name: (part, fault) for part, fault in drawn}.values()
        for part, fault in chosen:
            caused[fault] += 1
            print(json.dumps({"left_s": round(ends - asyncio.get_running_loop().time()), part.name: fault}), flush=True)
        await asyncio.gather(*[part.harm(fault, random) for part, fault in chosen])
        await later(random.uniform(0.5, 3))
    return caused


@pytest.mark.fault("F26")
async def test_nothing_is_missed_doubled_or_lost(durable: EmbeddedServer, migrated: str, tmp_path: Path) -> None:
    file, acknowledged, done = tmp_path / "evidence", dict[str, str](), asyncio.Event()
    fleet = Fleet(durable, migrated, tmp_path, SHARD_LEASE_S)
    async with Database(migrated, size=1) as database, database.connection() as connection:
        token = await issue_token(connection, tenant=1, name="admin", scopes=("admin",))
        works = await issue_token(connection, tenant=1, name="worker", scopes=("worker",), grants=EVERYTHING)
    async with topology(tmp_path, migrated, works) as running:
        async with AsyncClient(running.urls[0], token) as client:
            for spec in specs(file):
                await client.create_job(spec)
        await fleet.until("three schedulers own all shards", OWNED, within_s=120)
        writer = asyncio.create_task(write(running.urls, token, acknowledged, done))
        caused = await harm(running, Random(SEED), SECONDS)
        done.set()
        await writer
        healed = await fleet.now_s()
        await fleet.decided(healed, within_s=60)
        await fleet.until("all executions end", IDLE, healed, within_s=180)
        async with AsyncClient(running.urls[0], token) as client:
            findings = (await client.doctor()).findings
        restarts = sum(part.restarts for parts in running.parts.values() for part in parts)
    await verify(fleet, file, acknowledged, caused=dict(caused), findings=findings, restarts=restarts)


async def verify(
    fleet: Fleet, file: Path, acknowledged: dict[str, str], *, caused: dict[str, int], findings: Any, restarts: int
) -> None:
    """All processes are gone: compare fires, evidence, acknowledged writes and the database."""
    evidence = lines(await asyncio.to_thread(file.read_text))
    rows = await fleet.ask(EXECUTIONS)
    content = {str(r["execution_id"]): json.dumps(json.loads(r["params"] or "{}"), sort_keys=True) for r in rows}
    once = frozenset(str(r["execution_id"]) for r in rows if r["name"] == "job-3-once-shell")
    ended = {(line.execution, line.attempt) for line in evidence if line.what == "end"}
    succeeded = {(str(r["execution_id"]), r["attempt"]) for r in await fleet.ask(SUCCEEDED)}
    # What runs now was killed with its worker, as were attempts that ended otherwise than well.
    killed = {(line.execution, line.attempt) for line in evidence} - ended
    killed &= {(str(r["execution_id"]), r["attempt"]) for r in await fleet.ask(KILLED)}
    booted_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    due = {str(r["execution_id"]): r["fire_at"].timestamp() - booted_s for r in rows}
    offences = check(evidence, content, acknowledged, at_most_once=once, killed=frozenset(killed), due=due)
    idle = sorted(acknowledged.keys() - {line.execution for line in evidence})
    # A result was accepted from an attempt that did not end, or was followed by another.
    stale = len(succeeded - ended) + (await fleet.ask(REPLACED))[0]["count"]
    verdict = await fleet.judge("job-")
    figures = {
        "missed": len(verdict.missed),
        "doubled": len(verdict.doubled) + len(offences.doubled) + len(offences.repeated),
        "lost": len(offences.lost) + len(idle),
        "stale": stale,
        "overlapping": len(offences.overlapping),
        "early": len(verdict.early) + len(offences.early),
    }
    print(json.dumps({"seconds": SECONDS, "seed": SEED, **figures, "fires": len(verdict.fires), "faults": caused}))
    verdict.demand(
        "soak with random faults",
        soak_s=SECONDS,
        acknowledged=len(acknowledged),
        starts=sum(line.what == "start" for line in evidence),
        lost=figures["lost"],
        stale=stale,
        overlapping=len(offences.overlapping),
        faults=sum(caused.values()),
        restarts=restarts,
    )
    assert offences.none, offences
    assert not idle, f"acknowledged and never started: {idle[:5]}"
    assert stale == 0
    assert findings == [], findings
