"""The job page's part about pauses, deadlines and backfills."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx2

from mainspring import wire
from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import backfills, jobs
from mainspring.views import backfills as backfill_views
from tests.conftest import Cluster
from tests.support.pages import open_page


async def test_a_backfill_is_shown_and_ended_from_the_page(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    spec = JobSpec(name="filled", task=NoopTask(), schedule=ScheduleSpec(cron="0 3 * * *"), queue="nobody")
    job_id = await jobs.create(cluster.database, spec, tenant=TENANT, by="test")
    page = await open_page(browser, "/jobs/filled")
    assert "mainspring backfill filled --from" in page.text
    request = wire.BackfillRequest(from_=datetime(2026, 1, 1, tzinfo=UTC), to=datetime(2026, 1, 11, tzinfo=UTC))
    backfill_id = await backfills.create(cluster.database, str(job_id), request, tenant=TENANT, by="test")
    page = await open_page(browser, "/jobs/filled")
    assert f"b-{backfill_id}" in page.ids() and "of 10" in page.text
    for verb, state in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
        data = {"csrf": page.csrf, "back": "/jobs/filled"}
        answer = await browser.post(f"/backfills/{backfill_id}/{verb}", data=data)
        assert (answer.status_code, answer.headers["location"]) == (303, "/jobs/filled")
        found = await backfill_views.get(cluster.database, backfill_id, tenant=TENANT)
        assert found.state == state
    assert (await browser.post("/backfills/xyz/pause", data={"csrf": page.csrf})).status_code == 404


async def test_a_pause_says_when_it_ends_and_can_be_caught_up_with(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    spec = JobSpec(name="resting", task=NoopTask(), schedule=ScheduleSpec(cron="0 3 * * *"))
    job_id = await jobs.create(cluster.database, spec, tenant=TENANT, by="test")
    until = datetime.now(UTC) + timedelta(hours=2)
    await jobs.pause(cluster.database, job_id, tenant=TENANT, reason="repairs", until=until)
    page = await open_page(browser, "/jobs/resting")
    assert "Paused: repairs. It resumes" in page.text
    assert "Catch up on missed fires" in (await open_page(browser, "/jobs/resting/resume")).text
    data = {"csrf": page.csrf, "catch_up": "true"}
    assert (await browser.post(f"/jobs/{job_id}/resume", data=data)).status_code == 303
    assert "Paused" not in (await open_page(browser, "/jobs/resting")).text


async def test_a_missed_deadline_is_a_sentence(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    spec = JobSpec(name="watched", task=NoopTask(), max_gap="1ms")
    await jobs.create(cluster.database, spec, tenant=TENANT, by="test")
    assert "Too long without a success" in (await open_page(browser, "/jobs/watched")).text
