from __future__ import annotations

from typing import Any
from uuid import UUID

import httpx2
import pytest

from mainspring import wire
from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.container import ContainerTask
from mainspring.domain.errors import NotFound
from mainspring.domain.job import JobSpec, NoopTask, ShellTask
from mainspring.domain.params import Param
from mainspring.domain.plugin import PluginTask
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.domain.task import HttpTask, PythonTask
from mainspring.domain.workflow.spec import Step, WorkflowSpec
from mainspring.intake import jobs, workflows
from mainspring.intake.validate.plugins import register_schemas as learn
from mainspring.views import jobs as job_views
from tests.conftest import Cluster
from tests.support.pages import Page, open_page, posted

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
    found = await job_views.get(cluster.database, "fresh", tenant=TENANT)
    assert found.spec.task == ShellTask(argv=("./report.sh", "two words", "--all"))
    assert found.spec.schedule == ScheduleSpec(cron="@daily", timezone="Asia/Tokyo")
    assert found.spec.description == "what it is for" and found.created_by.startswith("test admin [")
    await browser.post("/new", data=form | {"job": "piped", "command": "ls | wc -l", "shell": "1", "expression": ""})
    piped = await job_views.get(cluster.database, "piped", tenant=TENANT)
    assert piped.spec.task == ShellTask(argv=("ls | wc -l",), shell=True)
    assert piped.spec.schedule is None


async def test_retries_and_delivery_are_part_of_the_form(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    form = {"csrf": (await open_page(browser, "/new")).csrf, "command": "true", "expression": "", "zone": ""}
    waits = {"retries": "5", "retry_base": "10s", "retry_cap": "", "retry_jitter": "decorrelated"}
    assert (await browser.post("/new", data=form | waits | {"job": "patient"})).status_code == 303
    found = (await job_views.get(cluster.database, "patient", tenant=TENANT)).spec.retries
    assert found == RetryPolicy(max=5, base="10s", jitter="decorrelated")
    once = {"job": "careful", "retries": "0", "delivery": "at_most_once"}
    assert (await browser.post("/new", data=form | once)).status_code == 303
    assert (await job_views.get(cluster.database, "careful", tenant=TENANT)).spec.delivery == "at_most_once"
    page = await open_page(browser, "/jobs/patient")
    assert "5, from 10s to 1h; decorrelated jitter" in page.text


@pytest.mark.parametrize(
    ("wrong", "status", "says"),
    [
        ({"job": "two words"}, 422, "'two words' is not a job name"),
        ({"job": ""}, 422, "'' is not a job name"),
        ({"job": "taken"}, 409, "'taken' is taken"),
        ({"command": ""}, 422, "a command is required"),
        ({"command": "echo 'open"}, 422, "Close the quotes"),
        ({"command": "echo {{nonsense}}"}, 422, "{{nonsense}} is not known"),
        ({"expression": "0 25 * * *"}, 422, "cron, hour: 25 is out of range"),
        ({"zone": "Nowhere"}, 422, "unknown time zone 'Nowhere'"),
        ({"expression": '{"cron": 5}'}, 422, "cron"),
        ({"command": "echo \0"}, 422, "NUL"),
        ({"retries": "many"}, 422, "'many' is not a number"),
        ({"delivery": "at_most_once"}, 422, "cannot be retried automatically"),
    ],
)
async def test_a_slip_keeps_what_was_typed_and_adds_nothing(
    cluster: Cluster, browser: httpx2.AsyncClient, wrong: dict[str, str], status: int, says: str
) -> None:
    csrf = (await open_page(browser, "/new")).csrf
    form = {"csrf": csrf, "job": "taken", "command": "true", "expression": "@daily", "zone": ""}
    await browser.post("/new", data=form)
    before = [j.name for j in (await job_views.list_jobs(cluster.database, tenant=TENANT)).items]
    form = form | {"job": "typed", "description": "kept as it was"} | wrong
    answer = await browser.post("/new", data=form)
    assert answer.status_code == status
    page = Page(answer.text)
    assert says in page.text
    assert page.active_parts() == []
    assert "kept as it was" in [i.get("value") for i in page.all("input")]
    assert [j.name for j in (await job_views.list_jobs(cluster.database, tenant=TENANT)).items] == before


async def add(cluster: Cluster, name: str, **spec: Any) -> UUID:
    task = spec.pop("task", ShellTask(argv=("echo", "two words"), env={"A": "1"}))
    return await jobs.create(cluster.database, JobSpec(name=name, task=task, **spec), tenant=TENANT, by="test")


async def job(cluster: Cluster, name: str) -> wire.Job:
    return await job_views.get(cluster.database, name, tenant=TENANT)


async def test_a_change_is_looked_at_and_then_saved(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    await add(cluster, "changed", schedule=ScheduleSpec(cron="30 2 * * *", timezone="Europe/Berlin"), priority=7)
    page = await open_page(browser, "/jobs/changed/edit")
    form = posted(page)
    assert (form["command"], form["env"], form["priority"], form["queue"]) == ("echo 'two words'", "A=1", "7", "")
    form |= {"expression": "0 4 * * *", "queue": "long", "retries": "5", "do": "review"}
    looked = Page((await browser.post("/jobs/changed/edit", data=form)).text)
    assert '- "cron": "30 2 * * *"' in looked.text
    assert '+ "cron": "0 4 * * *"' in looked.text
    assert '+ "queue": "long"' in looked.text
    assert "At 04:00 every day (Europe/Berlin)" in looked.text
    assert "mainspring add changed --replace" in looked.text
    assert looked.active_parts() == []
    assert (await job(cluster, "changed")).version == 1, "looking changes nothing"
    answer = await browser.post("/jobs/changed/edit", data=posted(looked) | {"do": "save"})
    found = await job(cluster, "changed")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{found.job_id}")
    assert (found.version, found.spec.queue, found.spec.priority, found.spec.retries.max) == (2, "long", 7, 5)
    assert found.spec.schedule == ScheduleSpec(cron="0 4 * * *", timezone="Europe/Berlin")
    assert found.spec.task == ShellTask(argv=("echo", "two words"), env={"A": "1"})


async def test_what_was_not_looked_at_is_not_saved(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    await add(cluster, "unseen")
    form = posted(await open_page(browser, "/jobs/unseen/edit")) | {"queue": "long"}
    answer = await browser.post("/jobs/unseen/edit", data=form | {"do": "save"})
    assert (answer.status_code, (await job(cluster, "unseen")).version) == (200, 1)
    looked = posted(Page(answer.text))
    answer = await browser.post("/jobs/unseen/edit", data=looked | {"do": "save", "queue": "other"})
    assert (answer.status_code, (await job(cluster, "unseen")).version) == (200, 1), "changed since the look"
    assert '+ "queue": "other"' in Page(answer.text).text


async def test_a_change_of_somebody_else_is_shown_and_not_overwritten(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    job_id = await add(cluster, "raced", queue="short")
    form = posted(await open_page(browser, "/jobs/raced/edit")) | {"queue": "long", "do": "review"}
    form = posted(Page((await browser.post("/jobs/raced/edit", data=form)).text)) | {"do": "save"}
    await jobs.patch(cluster.database, job_id, {"priority": 9}, tenant=TENANT, by="another")
    answer = await browser.post("/jobs/raced/edit", data=form)
    assert answer.status_code == 409
    refused = Page(answer.text)
    assert "version 2 was saved while you edited version 1" in refused.text
    assert '+ "priority": 9' in refused.text, "what they changed"
    assert '+ "queue": "long"' in refused.text, "what I would change"
    assert ((await job(cluster, "raced")).version, (await job(cluster, "raced")).spec.priority) == (2, 9)


async def test_every_problem_stands_at_its_field_with_all_that_was_typed(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    await add(cluster, "wrong")
    form = posted(await open_page(browser, "/jobs/wrong/edit"))
    form |= {"priority": "11", "timeout": "soon", "env": "A=1\r\nB=2", "start_at": "2020-01-01", "do": "review"}
    answer = await browser.post("/jobs/wrong/edit", data=form)
    assert answer.status_code == 422
    page = Page(answer.text)
    assert "this setting needs a schedule" in page.text
    form |= {"start_at": ""}
    page = Page((await browser.post("/jobs/wrong/edit", data=form)).text)
    wrong = {a.get("id"): a for _, a in page.elements if a.get("aria-invalid")}
    assert wrong.keys() == {"f-priority"}
    assert "f-priority-error" in page.ids()
    assert page.filled()["env"] == "A=1\nB=2"
    form |= {"priority": "1"}
    page = Page((await browser.post("/jobs/wrong/edit", data=form)).text)
    assert {a.get("id") for _, a in page.elements if a.get("aria-invalid")} == {"f-timeout"}
    assert "Seconds, 90s, 10m" in page.text
    assert (await job(cluster, "wrong")).version == 1


async def test_every_kind_of_task_can_be_added(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    page = await open_page(browser, "/new")
    tasks: list[tuple[dict[str, str], Any]] = [
        (
            {"kind": "http", "url": "https://example.org/{{fire_at}}", "http_method": "POST", "body": '{"a": 1}'},
            HttpTask(url="https://example.org/{{fire_at}}", method="POST", body={"a": 1}),
        ),
        ({"kind": "python", "function": "app:f", "args": '{"n": 1}'}, PythonTask(function="app:f", args={"n": 1})),
        (
            {"kind": "container", "image": "busybox", "container_args": "echo hi", "network": "1"},
            ContainerTask(image="busybox", args=("echo", "hi"), network=True),
        ),
        ({"kind": "noop"}, NoopTask()),
    ]
    for number, (fields, task) in enumerate(tasks):
        answer = await browser.post("/new", data={"csrf": page.csrf, "job": f"kind-{number}", **fields})
        assert answer.status_code == 303, Page(answer.text).text
        assert (await job(cluster, f"kind-{number}")).spec.task == task
    answer = await browser.post("/new", data={"csrf": page.csrf, "job": "kind-x", "kind": "magic"})
    assert answer.status_code == 422
    assert "unknown task kind 'magic'" in Page(answer.text).text


async def test_a_plug_in_has_the_fields_of_its_schema(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    schema = {
        "type": "object",
        "required": ["statement"],
        "properties": {"statement": {"type": "string", "title": "Statement"}, "rows": {"type": "integer"}},
    }
    async with cluster.database.connection() as connection:
        await learn(connection, {"sql": schema}, tenant=TENANT, shared=False)
    page = await open_page(browser, "/new?kind=plugin:sql")
    assert {"f-plugin_sql_statement", "f-plugin_sql_rows"} <= page.ids()
    form = {"csrf": page.csrf, "job": "asks", "kind": "plugin:sql", "plugin_sql_rows": "5"}
    answer = await browser.post("/new", data=form)
    assert answer.status_code == 422
    assert "statement" in Page(answer.text).text
    assert (await browser.post("/new", data=form | {"plugin_sql_statement": "select 1"})).status_code == 303
    assert (await job(cluster, "asks")).spec.task == PluginTask("sql", {"statement": "select 1", "rows": 5})


async def test_a_copy_starts_from_another_job(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    await add(cluster, "original", schedule=ScheduleSpec(every="1h"), params={"n": Param("integer", 3)})
    page = await open_page(browser, "/new?like=original")
    form = posted(page)
    assert form["job"] == "original-copy"
    assert (await browser.post("/new", data=form)).status_code == 303
    copy = (await job(cluster, "original-copy")).spec
    assert (copy.schedule, copy.params) == (ScheduleSpec(every="1h"), {"n": Param("integer", 3)})


async def test_a_new_job_can_be_looked_at_first(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    page = await open_page(browser, "/new")
    form = {"csrf": page.csrf, "job": "looked-at", "command": "true", "labels": "zone=mars", "do": "review"}
    answer = await browser.post("/new", data=form)
    looked = Page(answer.text)
    assert "Review" in looked.text
    assert "mainspring add looked-at --labels zone=mars -- true" in looked.text
    assert "a matching worker may start later." in looked.text
    with pytest.raises(NotFound):
        await job(cluster, "looked-at")
    assert (await browser.post("/new", data=posted(looked) | {"do": "save"})).status_code == 303


async def test_a_workflow_is_not_changed_as_a_job(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    step = Step(task=NoopTask())
    await workflows.apply(cluster.database, WorkflowSpec(name="flow", steps={"a": step}), tenant=TENANT, by="test")
    assert (await browser.get("/jobs/flow/edit")).status_code == 422
    assert (await browser.get("/new?like=flow")).status_code == 422
