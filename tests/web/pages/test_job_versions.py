from __future__ import annotations

import httpx2
import pytest

from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import jobs
from mainspring.views import jobs as job_views
from tests.conftest import Cluster
from tests.support.pages import Page, open_page
from tests.support.schedule_forms import add, form_of, job

pytestmark = pytest.mark.anyio

HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(2)>'"


async def test_versions_are_listed_with_what_they_changed(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    job_id = await add(cluster, "listed", priority=3)
    for changes in ({"priority": 9}, {"description": HOSTILE}, {"paused": True}):
        await jobs.patch(cluster.database, job_id, changes, tenant=TENANT, by="another")
    page = await open_page(browser, "/jobs/listed/versions")
    assert page.active_parts() == []
    assert {"v-4", "v-3", "v-2", "v-1"} <= page.ids()
    for words in (
        "Version 4 current",
        "Only the pause state changed",
        "Changed: description",
        "Changed: priority",
        '- "priority": 3',
        '+ "priority": 9',
        "by another",
        "Created",
    ):
        assert words in page.text
    back = [str(a["href"]) for a in page.all("a") if "rollback" in str(a.get("href"))]
    assert back == [f"/jobs/{job_id}/rollback?version={n}" for n in (3, 2, 1)]


async def test_a_version_comes_back_after_a_look(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    job_id = await add(cluster, "returned")
    await jobs.patch(cluster.database, job_id, {"schedule": {"every": "1h"}}, tenant=TENANT, by="another")
    page = await open_page(browser, f"/jobs/{job_id}/rollback?version=1")
    fires = await jobs.preview_patch(
        cluster.database, job_id, {"schedule": {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}}, tenant=TENANT
    )
    shown = [a["datetime"] for a in page.all("time") if "data-until" in a]
    assert shown == [f"{at:%Y-%m-%dT%H:%M:%S}.000Z" for at in fires.fires_after]
    assert '- "every": "1h"' in page.text
    assert '+ "cron": "30 2 * * *"' in page.text
    answer = await browser.post(f"/jobs/{job_id}/rollback", data=form_of(page))
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{job_id}")
    found = await job(cluster, "returned")
    assert (found.version, found.spec.schedule) == (3, ScheduleSpec(cron="30 2 * * *", timezone="Europe/Berlin"))
    same = await open_page(browser, f"/jobs/{job_id}/rollback?version=1")
    assert "Versions 1 and 3 are identical" in same.text


async def test_a_return_looked_at_for_an_older_version_is_not_made(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    job_id = await add(cluster, "overtaken")
    await jobs.patch(cluster.database, job_id, {"priority": 1}, tenant=TENANT, by="another")
    page = await open_page(browser, f"/jobs/{job_id}/rollback?version=1")
    await jobs.patch(cluster.database, job_id, {"priority": 2}, tenant=TENANT, by="another")
    answer = await browser.post(f"/jobs/{job_id}/rollback", data=form_of(page))
    assert answer.status_code == 409
    refused = Page(answer.text)
    assert "Not saved: the job has version 3 by now; this change was made for version 2" in refused.text
    assert '- "priority": 2' in refused.text
    assert (await job(cluster, "overtaken")).version == 3
    assert (await browser.post(f"/jobs/{job_id}/rollback", data=form_of(refused))).status_code == 303
    assert (await job(cluster, "overtaken")).spec.priority == 5


async def test_wrong_numbers_are_told(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    await add(cluster, "numbered")
    csrf = (await open_page(browser, "/jobs/numbered")).csrf
    for text in ("7", "x", "", "-1"):
        assert (await browser.get("/jobs/numbered/rollback", params={"version": text})).status_code == 404
        form = {"csrf": csrf, "version": "1", "to": text}
        assert (await browser.post("/jobs/numbered/rollback", data=form)).status_code == 404
    assert (await job(cluster, "numbered")).version == 1


async def test_a_version_that_cannot_come_back_says_why(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    job_id = await add(cluster, "renamed")
    await jobs.patch(cluster.database, job_id, {"name": "other-name"}, tenant=TENANT, by="x")
    async with cluster.database.transaction() as connection:
        # As if an older release had allowed it: what was valid once need not be valid now.
        await connection.execute(
            "UPDATE job_versions SET spec = jsonb_set(spec, '{schedule,cron}', '\"0 0 31 2 *\"')"
            " WHERE job_id = $1 AND version = 1",
            job_id,
        )
    page = await open_page(browser, f"/jobs/{job_id}/rollback?version=1")
    assert "Version 1 can't be restored: never fires" in page.text
    assert "Roll back to" not in page.text
    form = {"csrf": page.csrf, "version": "2", "to": "1"}
    assert (await browser.post(f"/jobs/{job_id}/rollback", data=form)).status_code == 422


async def test_versions_come_in_pages(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    job_id = await add(cluster, "many")
    for n in range(24):
        await jobs.patch(cluster.database, job_id, {"description": str(n)}, tenant=TENANT, by="another")
    first = await open_page(browser, "/jobs/many/versions")
    (onward,) = [str(a["href"]) for a in first.all("a") if a.get("rel") == "next"]
    second = await open_page(browser, onward)
    shown = [i for page in (first, second) for _, a in page.elements if (i := a.get("id")) and i.startswith("v-")]
    assert shown == [f"v-{n}" for n in range(25, 0, -1)]
    assert '- "description": "3"' in first.text, "the last of a page is compared with the first of the next"
    found = await job_views.list_versions(cluster.database, "many", tenant=TENANT, limit=500)
    assert len(found.items) == 25
