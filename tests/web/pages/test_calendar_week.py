"""The week of the calendar, on a server of its own: counts of schedules are kept for a while."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx2
import pytest

from mainspring import wire
from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import jobs
from tests.conftest import Cluster
from tests.support.pages import open_page

pytestmark = pytest.mark.anyio


async def test_the_week_has_closures_and_hides_frequent_jobs(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    for name, cron in (("week-often", "*/5 * * * *"), ("week-hourly", "20 * * * *")):
        spec = JobSpec(name=name, task=NoopTask(), schedule=ScheduleSpec(cron=cron))
        await jobs.create(cluster.database, spec, tenant=TENANT, by="test")
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).replace(hour=4, minute=0, second=0, microsecond=0)
    async with cluster.client() as client:
        await client.put_calendar("week-off", wire.CalendarDays(dates=[tomorrow.date()]))
        window = wire.NewBlackout(start_at=tomorrow, end_at=tomorrow + timedelta(hours=2), reason="week freeze")
        await client.add_blackout(window)
        page = await open_page(browser, "/calendar")
        cells = {a["data-at"]: a for tag, a in page.elements if tag == "td" and a.get("data-at")}
        held = [at for at, a in cells.items() if "held" in (a["class"] or "").split()]
        assert held == [f"{tomorrow + timedelta(hours=n):%Y-%m-%dT%H:%M:%S}.000Z" for n in (0, 1)]
        assert "week-off" in page.text and "week freeze" in page.text and "Blackouts and closed days" in page.text
        assert len(page.all("rect")) >= 1 and "now" in page.text
        assert "more often than hourly: show them" in page.text
        hidden = [a["title"] or "" for a in page.all("a") if "planned" in (a.get("title") or "")]
        everything = await open_page(browser, "/calendar?frequent=1")
        assert "more often than hourly: hide them" in everything.text
        shown = [a["title"] or "" for a in everything.all("a") if "planned" in (a.get("title") or "")]
        counts = [[int(title.partition("– ")[2].partition(" fire")[0].replace(",", "")) for title in t]
                  for t in (hidden[:24], shown[:24])]  # fmt: skip
        assert all(more >= few + 12 for few, more in zip(*counts, strict=True)), counts
