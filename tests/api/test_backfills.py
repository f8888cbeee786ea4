"""Backfills, timed pauses and late starts over HTTP, on a whole server with leader duties."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import NotFound
from tests.conftest import Cluster
from tests.support.api_jobs import named, noop, output

DAY = datetime(2026, 1, 1, tzinfo=UTC)
DAILY = {"cron": "0 3 * * *"}


def past(days: int, **more: Any) -> wire.BackfillRequest:
    return wire.BackfillRequest(from_=DAY, to=DAY + timedelta(days=days), **more)


async def ended(client: AsyncClient, backfill: wire.Backfill, timeout_s: float = 60) -> wire.Backfill:
    """Follows the feed: it is looked at whenever an execution ends."""
    until = time.monotonic() + timeout_s
    while (found := await client.backfill(backfill.backfill_id)).ended_at is None:
        assert time.monotonic() < until, found
        for execution in (await client.history(found.job, limit=1)).items:
            await client.execution(execution.execution_id, wait_s=0.2)
    return found


async def test_a_range_of_the_past_is_executed_on_a_worker(cluster: Cluster, client: AsyncClient) -> None:
    job = await client.create_job(noop(task={"kind": "shell", "argv": ["echo", "{{fire_at}}"]}, schedule=DAILY))
    await client.pause_job(job.name)
    plan = await client.plan_backfill(job.name, past(20))
    assert (plan.instants, plan.left_out, plan.page[0], plan.last) == (
        20,
        0,
        DAY + timedelta(hours=3),
        DAY + timedelta(days=19, hours=3),
    )
    assert (await client.backfills(job=job.name)).items == [], "a dry run writes nothing"
    began = time.monotonic()
    async with cluster.worker():
        backfill = await client.start_backfill(job.name, past(20, concurrency=2))
        done = await ended(client, backfill)
    assert (done.state, done.executions) == ("finished", {"succeeded": 20})
    assert time.monotonic() - began < 18, "fed by endings, not by the second"
    history = (await client.history(job.name, limit=50)).items
    assert [e.fire_at for e in history] == [DAY + timedelta(days=n, hours=3) for n in reversed(range(20))]
    assert {(e.backfill_id, e.trigger, e.priority) for e in history} == {(backfill.backfill_id, "backfill", 2)}
    assert "2026-01-01T03:00:00" in await output(client, history[-1]), "the nominal time"
    assert (await client.doctor()).findings == []


async def test_it_is_paused_resumed_and_cancelled(client: AsyncClient) -> None:
    job = await client.create_job(noop(schedule=DAILY, queue="nobody"))
    backfill = await client.start_backfill(job.name, past(20, concurrency=3))
    assert (await client.pause_backfill(backfill.backfill_id)).state == "paused"
    assert (await client.resume_backfill(backfill.backfill_id)).state == "running"
    assert (await client.cancel_backfill(backfill.backfill_id)).state == "cancelled"
    live = await client.executions(job=job.name, state=("queued", "running", "waiting"))
    assert live.items == []
    (listed,) = (await client.backfills(job=job.name)).items
    assert (listed.backfill_id, listed.state) == (backfill.backfill_id, "cancelled")


async def test_a_neighbour_has_no_part_in_it(client: AsyncClient, neighbour: AsyncClient) -> None:
    job = await client.create_job(noop(schedule=DAILY, queue="nobody"))
    backfill = await client.start_backfill(job.name, past(2))
    assert (await neighbour.backfills()).items == []
    for attempt in (
        neighbour.backfill(backfill.backfill_id),
        neighbour.pause_backfill(backfill.backfill_id),
        neighbour.cancel_backfill(backfill.backfill_id),
        neighbour.start_backfill(job.name, past(2)),
    ):
        with pytest.raises(NotFound):
            await attempt
    await client.cancel_backfill(backfill.backfill_id)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "from"),
        ({"from": "2026-01-01"}, "/from"),
        ({"from": "2026-01-01T00:00:00Z", "to": "2126-01-01T00:00:00Z"}, "/to"),
        ({"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}, "/to"),
        ({"from": "2026-01-01T00:00:00Z", "concurrency": 0}, "/concurrency"),
        ({"from": "2026-01-01T00:00:00Z", "priority": 11}, "/priority"),
        ({"from": "2026-01-01T00:00:00Z", "order": "random"}, "/order"),
        ({"from": "2026-01-01T00:00:00Z", "reproces": "all"}, "reproces"),
    ],
)
async def test_bad_requests_say_what_is_wrong(
    client: AsyncClient, http: httpx2.AsyncClient, body: dict[str, Any], pointer: str
) -> None:
    job = await client.create_job(noop(schedule=DAILY))
    answer = await http.post(f"/api/v1/jobs/{job.name}/backfill", json=body)
    assert answer.status_code == 422
    assert pointer in answer.text
    assert (await http.get(f"/api/v1/backfills/{uuid4()}")).status_code == 404
    assert (await http.get("/api/v1/backfills/xyz")).status_code == 404


async def test_the_leader_ends_a_pause_and_skips_what_starts_too_late(client: AsyncClient) -> None:
    paused = await client.create_job(noop(schedule=DAILY))
    soon = datetime.now(UTC) + timedelta(seconds=1)
    found = await client.pause_job(paused.name, "a moment", until=soon)
    assert (found.state, found.paused_until, found.pause_reason) == ("paused", soon, "a moment")
    late = await client.create_job(noop(queue="nobody", start_by="1s"))
    execution = await client.trigger(late.name)
    final = await client.wait(execution.execution_id, timeout_s=20)
    assert (final.state, final.reason) == ("skipped", "start_by")
    until = time.monotonic() + 20
    while (found := await client.job(paused.name)).state == "paused":
        assert time.monotonic() < until
    assert found.updated_at >= soon, "not before its time"


async def test_a_paused_job_is_run_by_hand_for_a_nominal_time(cluster: Cluster, client: AsyncClient) -> None:
    task = {"kind": "shell", "argv": ["echo", "{{fire_at}}", "{{execution_date}}"]}
    job = await client.create_job(noop(task=task, schedule=DAILY, paused=True))
    request = wire.RunNow(fire_at=DAY, key="again")
    async with cluster.worker():
        execution = await client.trigger(job.name, request)
        final = await client.wait(execution.execution_id, timeout_s=30)
    assert (final.state, final.fire_at, final.trigger) == ("succeeded", DAY, "manual")
    assert final.due_at > DAY and "2026-01-01" in await output(client, final)
    assert (await client.trigger(job.name, request)).execution_id == execution.execution_id


async def test_deadlines_are_checked_and_shown(client: AsyncClient, http: httpx2.AsyncClient) -> None:
    job = await client.create_job(noop(schedule={"every": "1h"}, finish_by="10m", max_gap="2h", start_by="5m"))
    assert [(d.kind, d.state) for d in job.deadlines] == [("finish_by", "ok"), ("max_gap", "ok")]
    finish_by, max_gap = (d.at for d in job.deadlines)
    assert finish_by == (job.next_fire_at or DAY) + timedelta(minutes=10)
    assert max_gap is not None and abs(max_gap - job.created_at - timedelta(hours=2)) < timedelta(seconds=1)
    for spec, pointer in (
        ({"finish_by": "10m"}, "/finish_by"),
        ({"start_by": "soon"}, "/start_by"),
        ({"max_gap": 0}, "/max_gap"),
        ({"pause_after_failures": 0}, "/pause_after_failures"),
    ):
        answer = await http.post("/api/v1/jobs", json=noop(**spec))
        assert answer.status_code == 422 and answer.json()["errors"][0]["pointer"] == pointer


async def test_a_key_stands_for_one_backfill(http: httpx2.AsyncClient) -> None:
    job = (await http.post("/api/v1/jobs", json=named(schedule={"every": "1h"}, paused=True))).json()
    path, to = f"/api/v1/jobs/{job['name']}/backfill", datetime.now(UTC).replace(microsecond=0)
    body = {"from": (to - timedelta(hours=5)).isoformat(), "to": to.isoformat(), "concurrency": 1}
    answers = await asyncio.gather(*(http.post(path, json=body, headers={"Idempotency-Key": "k"}) for _ in range(6)))
    assert {a.status_code for a in answers} == {201}
    (backfill_id,) = {a.json()["backfill_id"] for a in answers}
    other = await http.post(path, json={**body, "concurrency": 2}, headers={"Idempotency-Key": "k"})
    assert other.status_code == 409 and other.json()["code"] == "key_reused"
    second = await http.post(path, json=body, headers={"Idempotency-Key": "l"})
    listed = (await http.get("/api/v1/backfills", params={"job": job["name"]})).json()["items"]
    assert [b["backfill_id"] for b in listed] == [second.json()["backfill_id"], backfill_id]
    for b in listed:
        await http.post(f"/api/v1/backfills/{b['backfill_id']}/cancel")
