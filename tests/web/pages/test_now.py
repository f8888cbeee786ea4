from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx2
import pytest

from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.intake import jobs
from mainspring.store import charts
from mainspring.views import fire_calendar
from mainspring.views.fire_calendar import PastHour
from mainspring.web import fire_history_cache as kept
from mainspring.web.fire_history_cache import FRESH_S, FireHistoryCache
from tests.conftest import Cluster
from tests.support.live_page import listening, submit, until
from tests.support.pages import open_page

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 11, 16, 6, 30, tzinfo=UTC)


async def test_the_first_page_tells_how_long_the_oldest_waits(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    async with cluster.database.connection() as connection:
        assert await charts.oldest_queued(connection, tenant=TENANT) is None
    spec = JobSpec(name="stuck", task=NoopTask(), queue="nobody")
    job_id = await jobs.create(cluster.database, spec, tenant=TENANT, by="test")
    await submit(cluster, job_id)
    await submit(cluster, job_id)
    async with cluster.database.connection() as connection:
        first = await charts.oldest_queued(connection, tenant=TENANT)
        assert first is not None
        assert await charts.oldest_queued(connection, tenant=TENANT + 1) is None
    async with listening(browser, "/ui/stream?view=now") as events:
        told = await until(events, "oldest")
        assert 'id="day"' in told.data
    page = await open_page(browser, "/")
    assert "Fires, last 24 hours" in page.text and page.active_parts() == []
    assert "0 fires in 24 hours, 0 failed" in str(page.all("svg"))


class Hands:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.at = 0.0

    def monotonic(self) -> float:
        return self.at

    def now_ms(self) -> float:
        raise AssertionError("the caller says what time it is")


async def test_a_day_that_is_over_is_read_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def day(_: object, of: object, *, tenant: int) -> dict[int, PastHour]:
        asked.append(str(of))
        return {1000 * int(NOW.timestamp()) - 1_800_000: PastHour(10, 1, True)} if str(of) == "2026-11-16" else {}

    monkeypatch.setattr(kept, "past_day", day)
    assert fire_calendar.past_day is not day
    clock = Hands()
    pasts = FireHistoryCache(clock)
    bars = await pasts.bars(cluster.database, NOW, tenant=TENANT)
    assert asked == ["2026-11-15", "2026-11-16"]
    assert [(bar.at.hour, bar.height, bar.failed) for bar in bars][-2:] == [(5, 0.0, 0.0), (6, 100.0, 10.0)]
    await pasts.bars(cluster.database, NOW, tenant=TENANT)
    clock.at += FRESH_S + 1
    await pasts.bars(cluster.database, NOW + timedelta(minutes=1), tenant=TENANT)
    assert asked[2:] == ["2026-11-16"]
    # After midnight the day before is read once more: it was not over when it was counted.
    clock.at += FRESH_S + 1
    await pasts.bars(cluster.database, NOW + timedelta(days=1), tenant=TENANT)
    assert asked[3:] == ["2026-11-16", "2026-11-17"]
    clock.at += FRESH_S + 1
    await pasts.bars(cluster.database, NOW + timedelta(days=1), tenant=TENANT)
    assert asked[5:] == ["2026-11-17"]
