from __future__ import annotations

import httpx2
import pytest

from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.job import ShellTask
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule import ScheduleSpec
from mainspring.intake import catalog
from tests.conftest import Cluster
from tests.web.reading import Page, open_page

pytestmark = pytest.mark.anyio


async def test_a_job_is_added_from_the_form(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    page = await open_page(browser, "/new?expression=%40daily&zone=Asia%2FTokyo&job=fresh")
    assert "At 00:00 every day (Asia/Tokyo)" in page.text
    form = {
        "csrf": page.csrf,
        "job": "fresh",
        "command": "./report.sh 'two words' --all",
        "expression": "@daily",
        "zone": "Asia/Tokyo",
        "description": "what it is for",
    }
    answer = await browser.post("/new", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs/fresh")
    found = await catalog.job(cluster.database, "fresh", tenant=TENANT)
    assert found.spec.task == ShellTask(argv=("./report.sh", "two words", "--all"))
    assert found.spec.schedule == ScheduleSpec(cron="@daily", timezone="Asia/Tokyo")
    assert (found.spec.description, found.created_by) == ("what it is for", "test admin")
    await browser.post("/new", data=form | {"job": "piped", "command": "ls | wc -l", "shell": "1", "expression": ""})
    piped = await catalog.job(cluster.database, "piped", tenant=TENANT)
    assert piped.spec.task == ShellTask(argv=("ls | wc -l",), shell=True)
    assert piped.spec.schedule is None


async def test_retries_and_delivery_are_part_of_the_form(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    form = {"csrf": (await open_page(browser, "/new")).csrf, "command": "true", "expression": "", "zone": ""}
    waits = {"retries": "5", "retry_base": "10s", "retry_cap": "", "retry_jitter": "decorrelated"}
    assert (await browser.post("/new", data=form | waits | {"job": "patient"})).status_code == 303
    found = (await catalog.job(cluster.database, "patient", tenant=TENANT)).spec.retries
    assert found == RetryPolicy(max=5, base="10s", jitter="decorrelated")
    once = {"job": "careful", "retries": "0", "delivery": "at_most_once"}
    assert (await browser.post("/new", data=form | once)).status_code == 303
    assert (await catalog.job(cluster.database, "careful", tenant=TENANT)).spec.delivery == "at_most_once"
    page = await open_page(browser, "/jobs/patient")
    assert "5, from 10s to 1h; decorrelated jitter" in page.text


@pytest.mark.parametrize(
    ("wrong", "status", "says"),
    [
        ({"job": "two words"}, 422, "'two words' is not a job name"),
        ({"job": ""}, 422, "'' is not a job name"),
        ({"job": "taken"}, 409, "'taken' is taken"),
        ({"command": ""}, 422, "the command is missing"),
        ({"command": "echo 'open"}, 422, "Close the quotes"),
        ({"command": "echo {{nonsense}}"}, 422, "{{nonsense}} is not known"),
        ({"expression": "0 25 * * *"}, 422, "cron, hour: 25 is out of range"),
        ({"zone": "Nowhere"}, 422, "unknown time zone 'Nowhere'"),
        ({"expression": '{"cron": 5}'}, 422, "cron"),
        ({"command": "echo \0"}, 422, "NUL"),
        ({"retries": "many"}, 422, "'many' is not a number of retries"),
        ({"delivery": "at_most_once"}, 422, "can't be retried by the system"),
    ],
)
async def test_a_slip_keeps_what_was_typed_and_adds_nothing(
    cluster: Cluster, browser: httpx2.AsyncClient, wrong: dict[str, str], status: int, says: str
) -> None:
    csrf = (await open_page(browser, "/new")).csrf
    form = {"csrf": csrf, "job": "taken", "command": "true", "expression": "@daily", "zone": ""}
    await browser.post("/new", data=form)
    before = [j.name for j in (await catalog.list_jobs(cluster.database, tenant=TENANT)).items]
    form = form | {"job": "typed", "description": "kept as it was"} | wrong
    answer = await browser.post("/new", data=form)
    assert answer.status_code == status
    page = Page(answer.text)
    assert says in page.text
    assert page.active_parts() == []
    assert "kept as it was" in [i.get("value") for i in page.all("input")]
    assert [j.name for j in (await catalog.list_jobs(cluster.database, tenant=TENANT)).items] == before
