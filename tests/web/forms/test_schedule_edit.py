from __future__ import annotations

import httpx2
import pytest

from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.clock import SystemClock, instant
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import jobs
from mainspring.views import fires as fire_views
from mainspring.web.draw.filters import stamp, wall
from tests.conftest import Cluster
from tests.support.pages import Page, open_page
from tests.support.schedule_forms import add, form_of, job

pytestmark = pytest.mark.anyio


async def test_the_form_starts_with_what_the_job_has(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    await add(cluster, "starts")
    page = await open_page(browser, "/jobs/starts/schedule")
    assert "30 2 * * *" in page.text
    assert "Europe/Berlin" in [i.get("value") for i in page.all("input")]
    assert "No changes. Edit the schedule" in page.text
    assert "Save as" not in page.text
    assert 'data-preview="proposed"' in (await browser.get("/jobs/starts/schedule")).text


async def test_old_and_new_fires_stand_side_by_side_before_saving(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    job_id = await add(cluster, "compared")
    query = {"expression": "0 4 * * MON", "zone": "Asia/Tokyo"}
    answer = await browser.get("/jobs/compared/schedule", params=query)
    page = Page(answer.text)
    change = await jobs.preview_patch(
        cluster.database, job_id, {"schedule": {"cron": "0 4 * * MON", "timezone": "Asia/Tokyo"}}, tenant=TENANT
    )
    for before, after in zip(change.fires_before, change.fires_after, strict=True):
        row = "".join(wall(at, "Asia/Tokyo", instant(SystemClock().now_ms())) for at in (before, after))
        assert row in page.text
    assert [a["datetime"] for a in page.all("time") if "data-until" in a] == [*map(stamp, change.fires_after)]
    assert "At 04:00 on Monday (Asia/Tokyo)" in page.text
    assert "Current: at 02:30 every day (Europe/Berlin)" in page.text
    assert '- "cron": "30 2 * * *"' in page.text
    assert '+ "cron": "0 4 * * MON"' in page.text
    assert "Definition, version 1 to 2" in page.text
    assert page.active_parts() == []
    part = await browser.get("/jobs/compared/schedule", params={**query, "part": "1"})
    assert part.text.startswith('<div id="proposed">')
    assert (await job(cluster, "compared")).version == 1, "looking changes nothing"


async def test_saving_gives_a_version_that_fires_as_it_was_shown(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    await add(cluster, "saved", ScheduleSpec(cron="30 2 * * *", timezone="Europe/Berlin", gap="skip"))
    query = {"expression": "0 4 * * MON", "zone": ""}
    page = Page((await browser.get("/jobs/saved/schedule", params=query)).text)
    answer = await browser.post("/jobs/saved/schedule", data=form_of(page))
    found = await job(cluster, "saved")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{found.job_id}")
    assert (found.version, found.spec.schedule) == (2, ScheduleSpec(cron="0 4 * * MON")), "nothing of the old one stays"
    fires = await fire_views.of_job(cluster.database, "saved", tenant=TENANT, count=10)
    assert [a["datetime"] for a in page.all("time") if "data-until" in a] == [*map(stamp, fires.fires)]
    again = await browser.post("/jobs/saved/schedule", data=form_of(page) | {"version": "2"})
    assert again.status_code == 303
    assert (await job(cluster, "saved")).version == 2, "the same again is no change"


async def test_every_kind_of_schedule_can_take_the_place_of_another(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    await add(cluster, "kinds", None)
    csrf = (await open_page(browser, "/jobs/kinds")).csrf
    for version, (text, zone, expected) in enumerate(
        [
            ("every 10m aligned", "", ScheduleSpec(every="10m", aligned=True)),
            ("FREQ=DAILY", "Asia/Tokyo", ScheduleSpec(rrule="FREQ=DAILY", timezone="Asia/Tokyo")),
            ("2099-01-01T09:00", "Asia/Tokyo", ScheduleSpec(at="2099-01-01T09:00", timezone="Asia/Tokyo")),
            ('{"cron": "@daily", "exclude": ["2099-01-01"]}', "", ScheduleSpec(cron="@daily", exclude=("2099-01-01",))),
            ("", "", None),
        ],
        start=1,
    ):
        preview = await browser.get("/jobs/kinds/schedule", params={"expression": text, "zone": zone})
        assert f"Save as version {version + 1}" in Page(preview.text).text, text
        form = {"csrf": csrf, "version": str(version), "expression": text, "zone": zone}
        assert (await browser.post("/jobs/kinds/schedule", data=form)).status_code == 303, text
        assert (await job(cluster, "kinds")).spec.schedule == expected


async def test_a_one_time_job_shows_its_instant_as_the_old_fire(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    await add(cluster, "once", ScheduleSpec(at="2099-01-01T09:00:00Z"))
    page = Page((await browser.get("/jobs/once/schedule", params={"expression": "@daily"})).text)
    assert "Thu 1 Jan 2099 09:00:00 UTC" in page.text


async def test_a_change_made_for_an_older_version_is_not_saved(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    job_id = await add(cluster, "raced")
    page = Page((await browser.get("/jobs/raced/schedule", params={"expression": "0 4 * * *"})).text)
    await jobs.patch(cluster.database, job_id, {"schedule": {"cron": "0 5 * * *"}}, tenant=TENANT, by="another")
    answer = await browser.post("/jobs/raced/schedule", data=form_of(page))
    assert answer.status_code == 409
    refused = Page(answer.text)
    assert "Not saved: the job has version 2 by now; this change was made for version 1" in refused.text
    assert '- "cron": "0 5 * * *"' in refused.text, "shown against what is there now"
    found = await job(cluster, "raced")
    assert (found.version, found.spec.schedule) == (2, ScheduleSpec(cron="0 5 * * *", timezone="Europe/Berlin"))
    assert (await browser.post("/jobs/raced/schedule", data=form_of(refused))).status_code == 303
    assert (await job(cluster, "raced")).spec.schedule == ScheduleSpec(cron="0 4 * * *")


async def test_a_form_without_its_version_saves_nothing(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    await add(cluster, "versionless")
    csrf = (await open_page(browser, "/jobs/versionless")).csrf
    for version in ("", "x", "²", "99999999999"):
        form = {"csrf": csrf, "expression": "0 4 * * *", "version": version}
        assert (await browser.post("/jobs/versionless/schedule", data=form)).status_code == 422, version
    assert (await job(cluster, "versionless")).version == 1


async def test_a_slip_is_shown_and_never_saved(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    await add(cluster, "slipped")
    page = Page((await browser.get("/jobs/slipped/schedule", params={"expression": "0 25 * * *"})).text)
    assert "cron, hour: 25 is out of range" in page.text
    assert "0 25 * * *\n  ^^" in page.raw_text
    assert "Save as" not in page.text
    form = {"csrf": page.csrf, "version": "1", "expression": "0 25 * * *"}
    answer = await browser.post("/jobs/slipped/schedule", data=form)
    assert answer.status_code == 422
    assert "25 is out of range" in Page(answer.text).text
    assert (await job(cluster, "slipped")).version == 1


async def test_a_deleted_job_cannot_be_changed(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    job_id = await add(cluster, "gone")
    csrf = (await open_page(browser, "/jobs/gone")).csrf
    await jobs.delete(cluster.database, job_id, tenant=TENANT, by="test")
    form = {"csrf": csrf, "version": "1", "expression": "0 4 * * *"}
    assert (await browser.post(f"/jobs/{job_id}/schedule", data=form)).status_code == 404
    assert "Edit schedule" not in (await open_page(browser, f"/jobs/{job_id}")).text
    assert (await browser.get(f"/jobs/{job_id}/schedule", params={"expression": "@daily"})).status_code == 404


async def test_a_pause_says_why(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    job_id = await add(cluster, "rested")
    page = await open_page(browser, "/jobs/rested/pause")
    assert "f-reason" in page.ids()
    await browser.post(f"/jobs/{job_id}/pause", data={"csrf": page.csrf, "reason": "the disk is full"})
    for path in ("", "/ledger", "/versions", "/schedule"):
        assert "Paused: the disk is full" in (await open_page(browser, f"/jobs/rested{path}")).text, path
