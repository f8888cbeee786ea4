"""A file arrives at a real server: the CLI, the API and the web UI name the trigger and what reached it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest
from click.testing import CliRunner

from mainspring import wire
from mainspring.cli.main import main
from mainspring.client import AsyncClient
from mainspring.domain.job import NoopTask
from mainspring.domain.trigger import CompletionSource, WebhookSource
from mainspring.domain.watch import FilesSource
from mainspring.domain.workflow.spec import Step, WorkflowSpec
from tests.conftest import Cluster, started
from tests.support.pages import NAVIGATION, follow_link, open_page
from tests.support.processes import until_async
from tests.support.webhook_sender import Sender, github

pytestmark = pytest.mark.anyio
SECRET = "a-secret-of-the-sender"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
async def cluster(database_url: str, root: Path) -> AsyncIterator[Cluster]:
    async with started(database_url, watch_roots=(str(root),)) as cluster:
        yield cluster


@pytest.fixture
async def browser(cluster: Cluster) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=cluster.url, headers=NAVIGATION, timeout=30) as browser:
        caller = await cluster.context.auth.by_token(cluster.token)
        key, _ = await cluster.context.auth.new_login_link(caller)
        assert (await follow_link(browser, f"/login?k={key}")).status_code == 303
        yield browser


async def typed(cluster: Cluster, *words: str, code: int = 0) -> str:
    env = {"MAINSPRING_URL": cluster.url, "MAINSPRING_TOKEN": cluster.token, "COLUMNS": "300"}
    result = await asyncio.to_thread(CliRunner().invoke, main, words, env=env, prog_name="mainspring")
    assert result.exit_code == code, (words, result.output)
    return str(result.output)


async def first_start(client: AsyncClient, job: str) -> wire.Execution:
    async def there() -> bool:
        return bool((await client.executions(job=job)).items)

    await until_async(f"{job} has started", there, within_s=60)
    return (await client.executions(job=job)).items[0]


async def test_a_file_starts_a_job_whose_end_starts_another(
    cluster: Cluster, root: Path, browser: httpx2.AsyncClient
) -> None:
    folder = root / "inbox"
    folder.mkdir()
    (folder / "customers.csv").write_text("id,name")
    await typed(cluster, "add", "load", "--", "echo", "load {{params.file}}")
    await typed(cluster, "add", "report", "--", "true")
    more = (
        "--pattern",
        "*.csv",
        "--existing",
        "start",
        "--settle",
        "0",
        "--interval",
        "5s",
        "-p",
        "file={{file.path}}",
    )
    async with cluster.worker(), cluster.client() as client:
        source = CompletionSource(after="load")
        await client.add_trigger(wire.NewTrigger(name="after-load", source=source, job="report"))
        made = await typed(cluster, "triggers", "add", "inbox", "--job", "load", "--files", str(folder), *more)
        assert f"files {folder}/*.csv, starts load" in made
        load, report = await first_start(client, "load"), await first_start(client, "report")
        assert load.params == {"file": str(folder / "customers.csv")}
        assert (load.started_by, load.created_by) == (
            (await client.ledger("load")).items[0].started_by,
            f"trigger inbox, delivery {load.started_by.delivery}"[:200] if load.started_by else "",
        )
        assert str(load.started_by) == "trigger inbox: file customers.csv"
        assert report.started_by is not None and report.started_by.execution_id == load.execution_id
        assert (await client.why(load.execution_id)).started_by == load.started_by
    text = str(load.started_by)
    assert text in await typed(cluster, "jobs", "ledger", "load")
    assert "trigger inbox" in await typed(cluster, "jobs", "history", "load")
    assert f"started by {text}" in await typed(cluster, "why", str(load.execution_id))
    assert text in await typed(cluster, "executions", "get", str(load.execution_id))
    assert f"trigger after-load: succeeded {load.execution_id}" in await typed(cluster, "jobs", "ledger", "report")
    shown = await typed(cluster, "triggers", "get", "inbox")
    assert "looked " in shown and "error" not in shown
    for page in ("/jobs/load/ledger", f"/executions/{load.execution_id}"):
        content = (await browser.get(page)).text
        assert 'trigger <a href="/triggers/inbox">inbox</a>' in content and "file customers.csv" in content, page
    for page in ("/jobs/report/ledger", f"/executions/{report.execution_id}"):
        content = (await browser.get(page)).text
        assert f'succeeded <a class="mono" href="/executions/{load.execution_id}">' in content, page


async def test_a_webhook_is_named_with_its_event(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    await typed(cluster, "add", "deploy", "--", "true")
    async with cluster.client() as client:
        hook = wire.NewTrigger(name="pushed", source=WebhookSource(scheme="github"), job="deploy", secret=SECRET)
        made = await client.add_trigger(hook)
        body = b"{}"
        async with httpx2.AsyncClient(base_url=cluster.url, trust_env=False) as http:
            answer = await Sender(http, str(made.path)).post(body, github(SECRET, body, delivery="d-1"))
        (entry,) = (await client.ledger("deploy")).items
    assert str(entry.execution_id) == answer.json()["execution_id"] and entry.started_by is not None
    assert (entry.started_by.event, entry.started_by.delivery) == ("push", "id:d-1")
    assert "push, delivery id:d-1" in (await browser.get("/jobs/deploy/ledger")).text


async def test_the_run_of_a_workflow_names_its_trigger(
    cluster: Cluster, root: Path, browser: httpx2.AsyncClient
) -> None:
    folder = root / "flows"
    folder.mkdir()
    (folder / "a.csv").write_text("x")
    async with cluster.client() as client:
        await client.apply_workflow(WorkflowSpec(name="flow", steps={"a": Step(task=NoopTask())}))
        source = FilesSource(place=str(folder), existing="start", settle=0)
        await client.add_trigger(wire.NewTrigger(name="flows", source=source, job="flow"))
        execution = await first_start(client, "flow")
        run = await client.run(execution.execution_id)
    assert run.started_by == execution.started_by and str(run.started_by) == "trigger flows: file a.csv"
    content = (await browser.get(f"/runs/{run.run_id}")).text
    assert 'started by trigger <a href="/triggers/flows">flows</a>' in content
    assert "trigger flows: file a.csv" in await typed(cluster, "jobs", "ledger", "flow")


async def test_a_place_that_is_not_allowed_is_shown_everywhere(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    job, name = (f"{word}-{uuid4().hex[:8]}" for word in ("job", "files"))
    await typed(cluster, "add", job, "--", "true")
    csrf = (await open_page(browser, "/triggers")).csrf
    fields = {"csrf": csrf, "kind": "files", "name": name, "job": job, "place": "/etc", "existing": "ignore"}
    made = await browser.post("/triggers", data={**fields, "pattern": "*"})
    assert made.status_code == 200, made.text
    async with cluster.client() as client:

        async def failing() -> bool:
            return (await client.get_trigger(name)).state == "failing"

        await until_async("the leader has looked", failing, within_s=60)
        error = (await client.get_trigger(name)).last_error
        assert error is not None and error.startswith("/etc is not below a folder or store that the server may watch")
        assert error in str((await client.why_job(job)).reasons)
    assert error in await typed(cluster, "triggers", "get", name)
    assert "keeps its kind" in await typed(cluster, "triggers", "edit", name, "--webhook", "github", code=2)
    await typed(cluster, "triggers", "edit", name, "--pattern", "*.csv")
    async with cluster.client() as client:
        found = (await client.get_trigger(name)).spec.source
        assert isinstance(found, FilesSource) and (found.place, found.pattern) == ("/etc", "*.csv")
    assert re.search(rf"{name}.*failing", await typed(cluster, "triggers", "list"))
    for page in ("/triggers", f"/triggers/{name}"):
        content = (await browser.get(page)).text
        assert "failing" in content and "/etc is not below a folder" in content, page
    wrong = await browser.post("/triggers", data={**fields, "name": "other", "pattern": "../*"})
    assert wrong.status_code == 422 and "relative to the folder" in wrong.text
