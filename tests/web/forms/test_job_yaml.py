from __future__ import annotations

import httpx2
import pytest

from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.job import JobSpec, ShellTask
from mainspring.domain.params import Param
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import jobs
from mainspring.manifest import read_job, write_job
from mainspring.views import jobs as job_views
from mainspring.web.forms import command_line
from tests.conftest import Cluster
from tests.support.definitions import SPECS
from tests.support.pages import Page, open_page, posted

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_what_is_written_reads_as_the_same_job(spec: JobSpec) -> None:
    assert read_job(write_job(command_line.without_defaults(spec))) == spec


async def test_the_example_is_looked_at_and_added(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    page = await open_page(browser, "/new.yaml")
    looked = Page((await browser.post("/new.yaml", data=posted(page) | {"do": "save"})).text)
    assert "Review" in looked.text
    assert looked.active_parts() == []
    assert (await browser.get("/jobs/nightly-report")).status_code == 404
    answer = await browser.post("/new.yaml", data=posted(looked) | {"do": "save"})
    assert answer.status_code == 303
    found = await job_views.get(cluster.database, "nightly-report", tenant=TENANT)
    assert (found.spec.metadata, found.spec.retries) == ({"team": "finance"}, RetryPolicy(max=3, base="10s"))
    again = await browser.post("/new.yaml", data=posted(looked) | {"do": "save"})
    assert again.status_code == 409
    assert "line 2, column 12: 'nightly-report' is taken" in Page(again.text).text


async def test_a_change_is_looked_at_and_of_the_version_seen(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    spec = JobSpec(
        name="texted", task=ShellTask(argv=("a",)), schedule=ScheduleSpec(every="1h"), params={"n": Param("integer", 1)}
    )
    job_id = await jobs.create(cluster.database, spec, tenant=TENANT, by="test")
    page = await open_page(browser, "/jobs/texted/yaml")
    form = posted(page)
    nothing = await browser.post("/jobs/texted/yaml", data=form | {"do": "review"})
    assert "No changes." in Page(nothing.text).text
    form["text"] = form["text"].replace("every: 1h", "every: 2h")
    looked = Page((await browser.post("/jobs/texted/yaml", data=form | {"do": "review"})).text)
    assert '+ "every": "2h"' in looked.text
    stale = posted(looked) | {"do": "save"}
    await jobs.patch(cluster.database, job_id, {"priority": 9}, tenant=TENANT, by="another")
    refused = await browser.post("/jobs/texted/yaml", data=stale)
    assert refused.status_code == 409
    assert '+ "priority": 9' in Page(refused.text).text
    again = posted(Page(refused.text)) | {"do": "save"}
    assert (await browser.post("/jobs/texted/yaml", data=again)).status_code == 303
    found = (await job_views.get(cluster.database, "texted", tenant=TENANT)).spec
    assert (found.schedule, found.params) == (ScheduleSpec(every="2h"), {"n": Param("integer", 1)})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kind: Job\nmetadata: {name: x}\nspec:\n  task: {kind: noop}\n  priorty: 3\n", "did you mean 'priority'?"),
        ("kind: Job\nmetadata: {name: x}\nspec:\n  task: {kind: shell, argv: []}\n", "line 4, column 23"),
        ("name: x\ntask: {kind: noop}\nqueue: Loud\n", "line 3, column 1: 'Loud' is not a queue name"),
        ('name: x\ntask: {kind: shell, argv: ["a\\0"]}\n', "NUL"),
        ("name: x\n---\nname: y\n", "expected one document, got 2"),
        ("[1, 2]", "a job must be a mapping"),
        ("kind: Workflow\nmetadata: {name: x}\nspec: {}\n", "unexpected kind 'Workflow'"),
    ],
)
async def test_errors_have_a_place(cluster: Cluster, browser: httpx2.AsyncClient, text: str, says: str) -> None:
    form = posted(await open_page(browser, "/new.yaml")) | {"text": text, "do": "review"}
    answer = await browser.post("/new.yaml", data=form)
    assert answer.status_code == 422
    page = Page(answer.text)
    assert says.lower() in page.text.lower()
    assert page.filled()["text"].strip() == text.strip()
