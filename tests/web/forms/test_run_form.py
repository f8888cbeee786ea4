from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import httpx2
import pytest

from mainspring import wire
from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.job import JobSpec, NoopTask, ShellTask
from mainspring.domain.params import Param
from mainspring.domain.workflow.spec import Approval, Step, WorkflowSpec
from mainspring.intake import jobs, workflows
from mainspring.views import executions as execution_views
from tests.conftest import Cluster
from tests.support.pages import Page, open_page, posted

pytestmark = pytest.mark.anyio

PARAMS = {
    "region": Param("string", "eu", "where", ("eu", "us")),
    "count": Param("integer"),
    "deep": Param("boolean", default=False),
    "parts": Param("array", []),
    "free": Param(default=None),
}


async def add(cluster: Cluster, name: str, **spec: Any) -> UUID:
    spec = dict[str, Any](task=NoopTask(), queue="nobody") | spec
    return await jobs.create(cluster.database, JobSpec(name=name, **spec), tenant=TENANT, by="test")


async def made(cluster: Cluster, answer: httpx2.Response) -> wire.Execution:
    assert answer.status_code == 303, Page(answer.text).text
    return await execution_views.get(cluster.database, answer.headers["location"].split("/")[-1], tenant=TENANT)


async def test_every_parameter_has_a_field_of_its_type(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    await add(cluster, "typed", params=PARAMS)
    page = await open_page(browser, "/jobs/typed/run")
    assert {f"f-p_{name}" for name in PARAMS} <= page.ids()
    assert sorted(str(o.get("value")) for o in page.all("option")) == ["", "", "true", "us"], "defaults are not sent"
    assert [a.get("id") for _, a in page.elements if "required" in a] == ["f-p_count"]
    assert page.active_parts() == []
    form = posted(page) | {"p_count": "3", "p_region": "us", "p_parts": "[1, 2]", "p_free": "plain"}
    found = await made(cluster, await browser.post("/jobs/typed/run", data=form))
    assert found.params == {"count": 3, "region": "us", "parts": [1, 2], "free": "plain"}


async def test_what_is_wrong_stands_at_its_parameter(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    await add(cluster, "refused", params=PARAMS)
    form = posted(await open_page(browser, "/jobs/refused/run"))
    for wrong, says in (
        ({}, "the parameter 'count' is required"),
        ({"p_count": "many"}, "'many' is not an integer"),
        ({"p_count": "1", "p_region": "mars"}, 'is one of "eu", "us", and "mars" was given'),
        ({"p_count": "1", "p_parts": "{"}, "'{' is not an array"),
        ({"p_count": "1", "at": "tomorrow"}, "'tomorrow' is not a time"),
    ):
        answer = await browser.post("/jobs/refused/run", data=form | wrong)
        assert answer.status_code == 422, wrong
        page = Page(answer.text)
        assert says in page.text
        assert posted(page).items() >= {k: v for k, v in wrong.items() if k != "p_region"}.items()
    executions = await execution_views.list_executions(cluster.database, tenant=TENANT, job="refused")
    assert executions.items == []


async def test_at_a_time_and_once_per_key(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    await add(cluster, "timed")
    form = posted(await open_page(browser, "/jobs/timed/run"))
    form |= {"at": "2099-01-01T09:00", "key": "new-year", "params": '{"n": 1}', "fire_at": "2098-01-01T00:00Z"}
    first = await made(cluster, await browser.post("/jobs/timed/run", data=form))
    again = await made(cluster, await browser.post("/jobs/timed/run", data=form))
    assert first.execution_id == again.execution_id
    assert (first.state, first.due_at) == ("waiting", datetime(2099, 1, 1, 9, tzinfo=UTC))
    assert (first.params, first.fire_at) == ({"n": 1}, datetime(2098, 1, 1, tzinfo=UTC))
    answer = await browser.post("/jobs/timed/run", data=form | {"params": '{"n": 2}'})
    assert answer.status_code == 409
    assert "was used for a different request" in Page(answer.text).text
    answer = await browser.post("/jobs/timed/run", data=form | {"params": "[1]"})
    assert "parameters must be a JSON object" in Page(answer.text).text


async def test_an_execution_is_run_again_as_it_was(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    await add(cluster, "repeated", task=ShellTask(argv=("echo", "{{params.who}}")), params={"n": Param("integer", 1)})
    form = posted(await open_page(browser, "/jobs/repeated/run")) | {"p_who": "you", "p_n": "5"}
    first = await made(cluster, await browser.post("/jobs/repeated/run", data=form))
    page = await open_page(browser, f"/jobs/repeated/run?like={first.execution_id}")
    assert "mainspring run repeated -p n=5 -p who=you" in page.text
    again = await made(cluster, await browser.post("/jobs/repeated/run", data=posted(page)))
    assert again.execution_id != first.execution_id
    assert (again.params, again.fire_at) == (first.params, first.fire_at)
    await add(cluster, "another")
    assert (await browser.get(f"/jobs/another/run?like={first.execution_id}")).status_code == 404


async def test_a_workflow_is_run_with_its_parameters(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    spec = WorkflowSpec(name="flow", steps={"a": Step(approval=Approval())}, params={"day": Param("string")})
    await workflows.apply(cluster.database, spec, tenant=TENANT, by="test")
    page = await open_page(browser, "/jobs/flow/run")
    assert "mainspring workflows run flow" in page.text
    answer = await browser.post("/jobs/flow/run", data=posted(page) | {"p_day": "monday"})
    assert answer.headers["location"].startswith("/runs/")
    assert (await made(cluster, answer)).params == {"day": "monday"}


async def test_a_nul_is_refused_wherever_it_is_typed(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    await add(cluster, "nul")
    csrf = (await open_page(browser, "/jobs/nul/run")).csrf
    for path, form in (
        ("/jobs/nul/run", {"params": '{"a": "\\u0000"}'}),
        ("/jobs/nul/run", {"key": "a\0b"}),
        ("/jobs/nul/pause", {"reason": "a\0b"}),
        ("/jobs:bulk", {"q": "nul", "do": "pause", "progress": '{"begun": "x"}', "reason": "a\0b"}),
    ):
        answer = await browser.post(path, data=form | {"csrf": csrf})
        assert answer.status_code == 422, path
        assert "NUL" in Page(answer.text).text, path
    for path in ("/jobs", "/executions", "/jobs:bulk"):
        answer = await browser.get(path, params={"q": "a\0b"})
        assert answer.status_code == 400, path
        assert "NUL" in Page(answer.text).text, path
