"""The preview beside the YAML editor of a job: problems with their places, next fires, the change, completed keys."""

from __future__ import annotations

import json

import httpx2
import pytest

from mainspring.api.auth import issue_token
from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import jobs
from mainspring.web.forms.yaml_keys import known_keys
from tests.conftest import Cluster
from tests.support.pages import Page, open_page, sign_in

pytestmark = pytest.mark.anyio

PATH = "/ui/job-preview"
TEXT = """\
kind: Job
metadata: {name: NAME}
spec:
  task: {kind: noop}
  schedule: {cron: "0 2 * * *", timezone: Europe/Berlin}
"""


async def preview(browser: httpx2.AsyncClient, text: str, saved: str = "") -> Page:
    csrf = (await open_page(browser, "/new.yaml")).csrf
    answer = await browser.post(PATH, data={"csrf": csrf, "text": text, "saved": saved})
    assert answer.status_code == 200, answer.text
    return Page(answer.text)


async def test_a_valid_text_shows_its_next_fires_and_saves_nothing(browser: httpx2.AsyncClient) -> None:
    browser.cookies.set("mainspring_zone", "America/New_York")
    page = await preview(browser, TEXT.replace("NAME", "only-seen"))
    assert "Valid: at 02:00 every day (Europe/Berlin)" in page.text
    fires = [t for t in page.all("time") if "data-until" in t]
    assert len(fires) == 5 and {"preview-problems", "preview-body"} <= page.ids()
    assert "America/New_York" in page.text and ("EST" in page.text or "EDT" in page.text)  # in the reader's zone
    assert (await browser.get("/jobs/only-seen")).status_code == 404
    assert page.active_parts() == []


async def test_problems_have_line_column_and_message(browser: httpx2.AsyncClient) -> None:
    page = await preview(browser, TEXT.replace("NAME", "broken").replace("0 2 * * *", "75 2 * * *"))
    (place,) = (a for a in page.all("a") if "data-line" in a)
    assert place["data-line"] == "5" and "75" in (place["data-message"] or "")
    assert "preview-body" not in page.ids()  # the script keeps the last one
    assert [a for a in (await preview(browser, "")).all("a") if "data-line" in a] == []


async def test_a_change_is_shown_against_the_saved_version(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    spec = JobSpec(name="changing", task=NoopTask(), schedule=ScheduleSpec(cron="0 2 * * *", timezone="Europe/Berlin"))
    job_id = await jobs.create(cluster.database, spec, tenant=TENANT, by="test")
    same = TEXT.replace("NAME", "changing")
    assert "Changes to version 1 No changes." in (await preview(browser, same, str(job_id))).text
    page = await preview(browser, same.replace("0 2", "30 3"), "changing")
    assert "at 03:30 every day" in page.text and "30 3 * * *" in page.text and "No changes." not in page.text


async def test_a_viewer_has_no_preview(cluster: Cluster, stranger: httpx2.AsyncClient) -> None:
    async with cluster.database.connection() as connection:
        token = await issue_token(connection, tenant=TENANT, name="viewer", scopes=("read",))
    assert (await sign_in(stranger, token)).status_code == 303
    assert (await stranger.post(PATH, data={"text": TEXT})).status_code == 403


def test_the_keys_are_those_of_a_job() -> None:
    keys = json.loads(known_keys("Job"))
    assert {"task", "schedule", "retries", "queue"} <= set(keys["spec"]) and "steps" not in keys["spec"]
    assert "argv" in keys["spec"]["task"] and len(known_keys("Job")) < 8_000
