"""Poison definitions: schedules made to burn CPU, saved beside healthy jobs on a real server."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import httpx2
import msgspec
import pytest

from mainspring import wire
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpecs
from mainspring.embedded.server import EmbeddedServer
from mainspring.intake import calendars, jobs
from mainspring.store.db import Database
from tests.support.fleet import ROUNDS, Fleet, fleet
from tests.support.poison_schedules import ACCEPTED, CALENDARS

pytestmark = pytest.mark.fault

SECONDS = 12 if ROUNDS == 1 else 60
LATE_P99_S = 2.0
"""Generous: the machine of a test run is busy. `make faults` prints the figure; 0.1 s is the promise."""


async def save(url: str) -> int:
    """Save every poison schedule as a job, and one that becomes costly when its calendar is edited."""
    async with Database(url) as database:
        for calendar in CALENDARS.values():
            days = wire.CalendarDays(dates=sorted(calendar.dates), rules=list(calendar.rules), mode=calendar.mode)
            await calendars.put(database, calendar.name, days, tenant=1, by="test")
        await calendars.put(database, "edited", wire.CalendarDays(rules=["25 12 *"]), tenant=1, by="test")
        schedules = {**ACCEPTED, "edited later": {"cron": "* * * */2 * *", "calendar": "edited"}}
        for number, given in enumerate(schedules.values()):
            schedule = msgspec.convert(given, ScheduleSpecs)
            spec = JobSpec(name=f"poison-{number}", task=NoopTask(), overlap="allow", schedule=schedule)
            await jobs.create(database, spec, tenant=1, by="test")
        await calendars.put(database, "edited", wire.CalendarDays(rules=["*/2 * *"]), tenant=1, by="test")
    return len(schedules)


async def poll_health(port: int, until: asyncio.Event) -> list[float]:
    """Ask for the health of an API process until told to stop; return how long each answer took."""
    found = []
    async with httpx2.AsyncClient(trust_env=False, base_url=f"http://127.0.0.1:{port}", timeout=10) as http:
        while not until.is_set():
            asked = time.monotonic()
            (await http.get("/healthz")).raise_for_status()
            found.append(time.monotonic() - asked)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(until.wait(), 0.05)
    return sorted(found)


@pytest.mark.fault("F27")
async def test_poison_schedules_delay_no_other_job(durable: EmbeddedServer, loaded: str, tmp_path: Path) -> None:
    """F27: all instants of the healthy jobs are decided, soon; the costly schedule is paused; the API answers."""
    async with fleet(durable, loaded, tmp_path, schedulers=0) as running:
        name = running.start(api=True)
        await running.balanced(1)
        poison = await save(loaded)
        stop = asyncio.Event()
        health = asyncio.create_task(poll_health(running.ports[name], stop))
        running.warm_s = await running.now_s()
        await running.decided(running.warm_s + SECONDS, within_s=SECONDS + 30)
        stop.set()
        answers = await health
        verdict = await running.judge("job-")
        paused, fired = await reports(running)
    figures = verdict.figures()
    verdict.demand(
        "poison definitions",
        definitions=poison,
        paused=len(paused),
        poison_fires=fired,
        healthz_p99_s=round(answers[int(len(answers) * 0.99)], 3),
        healthz_max_s=round(answers[-1], 3),
    )
    assert [reason for reason in paused if not reason.startswith("schedule too costly: ")] == []
    assert len(paused) == 1, "only the job whose calendar was edited"
    assert fired > SECONDS, "the others fire"
    assert len(answers) > SECONDS
    assert figures["late_p99_s"] < LATE_P99_S


async def reports(running: Fleet) -> tuple[list[str], int]:
    paused = await running.ask("SELECT pause_reason FROM mainspring.jobs WHERE paused_at IS NOT NULL")
    ((fired,),) = await running.ask(
        "SELECT count(*) FROM mainspring.all_executions e JOIN mainspring.jobs j USING (job_id)"
        " WHERE j.name LIKE 'poison-%' AND e.state <> 'skipped'"
    )
    return [row["pause_reason"] for row in paused], fired
