from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx2
import msgspec
import pytest

from mainspring import wire
from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.clock import instant, millis
from mainspring.domain.execution import fire_ms_of
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import jobs
from mainspring.views.fire_calendar import PastHour
from mainspring.views.fire_density import HOUR_MS
from mainspring.web.pages.calendar import DAYS_AHEAD, DAYS_BACK, LEVELS, columns
from tests.conftest import Cluster
from tests.support.live_page import submit
from tests.support.pages import open_page

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 11, 16, 6, 10, tzinfo=UTC)
BEGIN_MS = millis(NOW) // HOUR_MS * HOUR_MS


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
    assert 0 < today[6].level <= today[5].level < today[11].level == LEVELS
    assert today[4].level == 0


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
