from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx2
import msgspec
import pytest

from mainspring import wire
from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.clock import instant, millis
from mainspring.domain.execution import fire_ms_of
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.schedule.calendar import Blackout, RecurringBlackout
from mainspring.domain.schedule.schedule import ScheduleSpec, compile_key, resolve
from mainspring.intake import jobs
from mainspring.views.closures import BlackoutHours, Closures, blocks_of, closed_days, hours_held
from mainspring.views.fire_calendar import PastHour
from mainspring.views.fire_density import HOUR_MS
from mainspring.web.draw.week import DAYS_AHEAD, DAYS_BACK, LEVELS, columns
from tests.conftest import Cluster
from tests.support.live_page import submit
from tests.support.pages import open_page

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 11, 16, 6, 10, tzinfo=UTC)
BEGIN_MS = millis(NOW) // HOUR_MS * HOUR_MS
FREEZE: dict[str, Any] = {
    "blackout_id": UUID(int=1), "queue": None, "job": None, "start_at": NOW, "end_at": NOW + timedelta(hours=2),
    "schedule": None, "lasts_s": None, "description": "two hours", "reason": "freeze", "holds_until": None,
    "next_at": None, "created_at": NOW, "created_by": "test",
}  # fmt: skip
HOLIDAYS = wire.Calendar(
    name="holidays", version=1, days=wire.CalendarDays(dates=[date(2026, 11, 17)], rules=["* * SAT,SUN"]), jobs=2,
    created_at=NOW, created_by="test",
)  # fmt: skip


def _key(cron: str) -> str:
    key = resolve(ScheduleSpec(cron=cron), now_ms=BEGIN_MS).key
    assert key is not None
    return key


async def test_hours_ahead_open_minute_by_minute(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    spec = JobSpec(name="sleepy", task=NoopTask(), schedule=ScheduleSpec(cron="15 4 * * *"))
    await jobs.create(cluster.database, spec, tenant=TENANT, by="test")
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).replace(hour=4, minute=0, second=0, microsecond=0)
    page = await open_page(browser, f"/calendar?at={tomorrow:%Y-%m-%dT%H}:00:00Z")
    assert page.active_parts() == []
    assert "At most 1 fire per minute" in str(page.elements) and "at 04:15 every day" in page.text
    assert "sleepy" in page.text
    bars = [a for tag, a in page.elements if tag == "rect" and a.get("width") == "8"]
    assert [n for n, bar in enumerate(bars) if bar["height"] != "0.0"] == [15]


@pytest.mark.parametrize("at", ["nonsense", "2026-11-16T03:00:00", "2026-13-01T00:00:00Z"])
async def test_an_hour_that_is_none_is_refused(browser: httpx2.AsyncClient, at: str) -> None:
    answer = await browser.get("/calendar", params={"at": at})
    assert answer.status_code == 422 and "2026-11-16T03:00:00Z" in answer.text


def test_days_go_from_the_past_to_what_is_planned() -> None:
    plan = [0] * (DAYS_AHEAD * 24)
    plan[0], plan[5] = 7, 1000
    past = {BEGIN_MS - HOUR_MS: PastHour(10, 2, False)}
    found = columns(NOW, BEGIN_MS, plan, True, past)
    assert [day.isoformat() for day, _ in found] == [f"2026-11-{n:02d}" for n in range(16 - DAYS_BACK, 16 + DAYS_AHEAD)]
    today = found[DAYS_BACK][1]
    assert [(c.at.hour, c.ahead, c.count, c.failed, c.exact) for c in today if c.count] == [
        (5, False, 10, 2, False),
        (6, True, 7, 0, True),
        (11, True, 1000, 0, True),
    ]
    assert [c.minute for _, cells in found for c in cells if c.minute is not None] == [10], "where the line of now is"
    assert 0 < today[6].level <= today[5].level < today[11].level == LEVELS
    assert today[4].level == 0


def test_blackouts_and_closed_days_are_drawn_where_they_hold_fires_back() -> None:
    window = Blackout(BEGIN_MS + HOUR_MS // 2, BEGIN_MS + 2 * HOUR_MS)
    nightly = RecurringBlackout(compile_key(_key("30 23 * * *")), HOUR_MS)
    hours = hours_held(window, BEGIN_MS - 5 * HOUR_MS, BEGIN_MS + 24 * HOUR_MS)
    assert hours == {BEGIN_MS, BEGIN_MS + HOUR_MS}
    midnight = millis(NOW.replace(hour=0, minute=0))
    over = hours_held(nightly, midnight, midnight + 48 * HOUR_MS)
    assert {(h - midnight) // HOUR_MS for h in over} == {0, 23, 24, 47}, "also one that began the day before"
    often = RecurringBlackout(compile_key(_key("*/10 * * * *")), 12 * 60_000)
    assert len(hours_held(often, midnight, midnight + 48 * HOUR_MS)) == 48
    whole, part = (
        BlackoutHours(wire.Blackout(**(FREEZE | {"job": job})), found) for job, found in ((None, hours), ("one", over))
    )
    days = closed_days([HOLIDAYS], [NOW.date() + timedelta(days=n) for n in range(14)])
    shown = columns(NOW, BEGIN_MS, [0] * 240, True, {}, closed=Closures([part, whole], days))
    today = shown[DAYS_BACK][1]
    assert [c.at.hour for c in today if c.is_held] == [6, 7]
    assert [c.at.hour for c in today if c.blackouts and not c.is_held] == [0, 23]
    assert [day.isoformat() for day in days] == ["2026-11-17", "2026-11-21", "2026-11-22", "2026-11-28", "2026-11-29"]
    (runs,) = [runs for _, runs in blocks_of(days)]
    assert [(a.day, b.day) for a, b in runs] == [(17, 17), (21, 22), (28, 29)]


async def test_an_hour_of_the_past_leads_to_what_ran_in_it(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    job_id = await jobs.create(cluster.database, JobSpec(name="ran", task=NoopTask()), tenant=TENANT, by="test")
    execution_id = await submit(cluster, job_id)
    hour_ms = fire_ms_of(execution_id) // HOUR_MS * HOUR_MS
    later = instant(hour_ms + HOUR_MS)
    shown = columns(later, hour_ms + HOUR_MS, [0] * 240, True, {hour_ms: PastHour(1, 0, True)})
    href = next(c.href for _, cells in shown for c in cells if c.count)
    assert f"e-{execution_id}" in (await open_page(browser, href)).ids()
    before = columns(later, hour_ms + HOUR_MS, [0] * 240, True, {hour_ms - HOUR_MS: PastHour(1, 0, True)})
    href = next(c.href for _, cells in before for c in cells if c.count)
    assert f"e-{execution_id}" not in (await open_page(browser, href)).ids()


async def test_the_agenda_has_the_fires_of_a_day_without_frequent_jobs(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    for name, schedule in (("agenda-often", {"every": "10m"}), ("agenda-daily", {"cron": "0 3 * * *"})):
        spec = JobSpec(name=name, task=NoopTask(), schedule=msgspec.convert(schedule, ScheduleSpec))
        await jobs.create(cluster.database, spec, tenant=TENANT, by="test")
    async with cluster.client() as client:
        start = datetime.now(UTC)
        window = wire.NewBlackout(start_at=start, end_at=start + timedelta(days=2), job="agenda-daily", reason="freeze")
        await client.add_blackout(window)
    page = await open_page(browser, "/calendar?view=agenda")
    assert "agenda-dailyheld back: freeze" in page.text and "agenda-often" not in page.text
    assert "more often than hourly: show them" in page.text
    assert "agenda-often" in (await open_page(browser, "/calendar?view=agenda&frequent=1")).text


async def test_the_fires_of_a_range_are_listed(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    for name, cron in (("range-often", "*/5 * * * *"), ("range-hourly", "20 * * * *")):
        spec = JobSpec(name=name, task=NoopTask(), schedule=ScheduleSpec(cron=cron))
        await jobs.create(cluster.database, spec, tenant=TENANT, by="test")
    day = (datetime.now(UTC) + timedelta(days=2)).date()
    async with cluster.client() as client:
        later = datetime(day.year, day.month, day.day, 5, 30, tzinfo=UTC)
        once = {"name": "range-once", "task": {"kind": "noop"}, "schedule": {"at": later.isoformat()}}
        await client.create_job(once)
        nightly = wire.NewBlackout(
            schedule=ScheduleSpec(cron="0 6 * * *"), lasts="30m", job="range-hourly", reason="backups"
        )
        await client.add_blackout(nightly)
    page = await open_page(browser, f"/calendar?from={day}T04:00&to={day}T07:00")
    assert page.text.count("range-hourly") == 4, "three fires, and the blackout of its own"
    assert "range-often" not in page.text and "left out" in page.text and "range-once" in page.text
    assert page.text.count("held back: backups") == 1, "a window that has not begun yet"
    assert "datetime-local" in str(page.elements) and f"{day}T07:00" in str(page.elements)
    assert "range-often" in (await open_page(browser, f"/calendar?frequent=1&from={day}T04:00&to={day}T07:00")).text
    job_id = await jobs.create(cluster.database, JobSpec(name="range-ran", task=NoopTask()), tenant=TENANT, by="test")
    await submit(cluster, job_id)
    before = datetime.now(UTC) - timedelta(hours=1)
    page = await open_page(browser, f"/calendar?from={before:%Y-%m-%dT%H:%M}&to={day}T07:00")
    assert "range-ran" not in page.text, "it was started by a user, no schedule demanded it"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("from=2026-11-16T03:00", "a range has a beginning and an end"),
        ("from=2026-11-16T03:00&to=2026-11-16T03:00", "ends before it begins"),
        ("from=2026-11-16T03:00&to=2027-11-16T03:00", "longer than 15 days"),
        ("from=0001-01-01T00:00&to=0001-01-02T00:00", "too far away"),
        ("from=9999-12-31T00:00&to=9999-12-31T23:00", "too far away"),
        ("from=soon&to=later", "is not a time"),
    ],
)
async def test_a_range_that_is_none_is_refused_on_the_page(
    browser: httpx2.AsyncClient, query: str, message: str
) -> None:
    answer = await browser.get(f"/calendar?{query}")
    assert answer.status_code == 422 and message in answer.text and "List fires" in answer.text
