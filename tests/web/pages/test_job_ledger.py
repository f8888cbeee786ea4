"""Did it run? The page against what firing recorded, under a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import httpx2
import pytest

from mainspring import wire
from mainspring.domain.execution import STATES, State
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.embedded.server import EmbeddedServer
from mainspring.intake import jobs
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import fires as fire_views
from mainspring.views import refs
from mainspring.web.draw.filters import stamp
from mainspring.web.pages.job_ledger import describe, summarize
from tests.conftest import Cluster, clone, started
from tests.support.pages import Page, open_page
from tests.support.scheduling import TENANT, add, finish_all, scheduler_on, step

pytestmark = pytest.mark.anyio


@pytest.fixture
async def cluster(postgres: EmbeddedServer) -> AsyncIterator[Cluster]:
    """Only the api: the test itself schedules, under the virtual clock."""
    async with started(await clone(postgres), roles=("api",)) as cluster:
        yield cluster


@pytest.fixture
async def clock(cluster: Cluster) -> VirtualClock:
    clock = VirtualClock(cluster.database)
    await clock.install()
    return clock


def due(page: Page) -> list[str]:
    """The instants of the ledger's rows, from their links."""
    return [str(a["title"]) for a in page.all("a") if a.get("title") and str(a["href"]).startswith("/executions/")]


async def test_page_api_and_firing_have_the_same_instants(
    cluster: Cluster, browser: httpx2.AsyncClient, clock: VirtualClock
) -> None:
    database = cluster.database
    await add(database, "watched", schedule=ScheduleSpec(cron="*/7 * * * *", timezone="Asia/Kathmandu"))
    ahead = await open_page(browser, "/jobs/watched/ledger")
    assert "No fires yet." in ahead.text
    planned = [str(a["datetime"]) for a in ahead.all("time") if "data-until" in a][-50:]
    assert len(planned) == 50
    scheduler = await scheduler_on(database)
    for minute in range(60):
        await clock.advance(minutes=1)
        await step(scheduler)
        if minute != 20:  # what came due in between meets one that is still alive
            await finish_all(database)
    page = await open_page(browser, "/jobs/watched/ledger")
    entries = (await fire_views.ledger(database, "watched", tenant=TENANT)).items
    assert due(page) == [stamp(entry.fire_at) for entry in entries]
    assert list(reversed(due(page))) == planned[: len(entries)]
    assert "Succeeded." in page.text
    assert page.active_parts() == []


async def test_ranges_and_reasons_are_told_in_words(
    cluster: Cluster, browser: httpx2.AsyncClient, clock: VirtualClock
) -> None:
    database = cluster.database
    await add(database, "told", schedule=ScheduleSpec(every=1, aligned=True))
    scheduler = await scheduler_on(database)
    await clock.advance(seconds=1)
    await step(scheduler)  # queued, and nobody takes it
    await clock.advance(seconds=1)
    await step(scheduler)  # meets the one before
    await finish_all(database)
    await clock.advance(seconds=57)
    job = await refs.job_row(database, "told", tenant=TENANT)
    await jobs.pause(database, job.job_id, tenant=TENANT, reason="the disk is full")
    page = await open_page(browser, "/jobs/told/ledger")
    assert "57 fires skipped: the job was paused." in page.text
    assert "The previous execution was still running." in page.text
    assert "Of the last 59 fires, 1 succeeded and 58 were skipped." in page.text
    assert "Paused: these fires are skipped unless the job is resumed." in page.text
    assert due(page)[0] == stamp(START + timedelta(seconds=59)), "a range names its last instant"


async def test_clock_changes_are_noted_beside_the_coming_fires(
    cluster: Cluster, browser: httpx2.AsyncClient, clock: VirtualClock
) -> None:
    await add(cluster.database, "nightly", schedule=ScheduleSpec(cron="30 2 * * *", timezone="Europe/Berlin"))
    page = await open_page(browser, "/jobs/nightly/ledger")
    assert "Next 50 fires" in page.text
    assert "2027-03-28 02:30 does not exist in Europe/Berlin: fires at 03:00" in page.text
    assert page.text.count("02:30:00 CET") == 50


async def test_the_ledger_comes_in_pages(cluster: Cluster, browser: httpx2.AsyncClient, clock: VirtualClock) -> None:
    await add(cluster.database, "long", schedule=ScheduleSpec(every=60, aligned=True), overlap="allow")
    await add(cluster.database, "asked", schedule=None)
    scheduler = await scheduler_on(cluster.database)
    for _ in range(60):
        await clock.advance(minutes=1)
        await step(scheduler)
    first = await open_page(browser, "/jobs/long/ledger")
    (onward,) = [str(a["href"]) for a in first.all("a") if a.get("rel") == "next"]
    second = await open_page(browser, onward)
    assert due(first) + due(second) == [stamp(START + timedelta(minutes=n)) for n in range(60, 0, -1)]
    assert "The job has no schedule" in (await open_page(browser, "/jobs/asked/ledger")).text


def entry(state: State, reason: str | None = None, *, late_ms: int | None = None, fires: int = 1) -> wire.LedgerEntry:
    return wire.LedgerEntry(
        fire_at=START,
        state=state,
        reason=reason,
        execution_id=UUID(int=1),
        late_ms=late_ms,
        duration_ms=None,
        fires=fires,
    )


def test_every_ending_has_words() -> None:
    for state in STATES:
        assert describe(entry(state, "misfire")).endswith("."), state
    assert describe(entry("skipped", "misfire")) == "Missed, and skipped by the misfire policy."
    assert describe(entry("skipped", "something new")) == "Something new."
    assert describe(entry("cancelled", "cancelled by ops")) == "Cancelled by ops."
    assert describe(entry("waiting")) == "Not due yet."
    assert describe(entry("waiting", late_ms=3)) == "Failed; waiting to retry."


def test_the_verdict_counts_instants() -> None:
    assert summarize([entry("queued")]) == ""
    assert summarize([entry("succeeded")]) == "The only fire so far succeeded."
    assert summarize([entry("succeeded")] * 3) == "All of the last 3 fires succeeded."
    assert (
        summarize([entry("succeeded"), entry("failed"), entry("skipped", "paused", fires=57)])
        == "Of the last 59 fires, 1 succeeded, 1 did not succeed and 57 were skipped."
    )
