"""Every way to give a job or a workflow a schedule is charged to the token's quota, and refused when it is used up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

import httpx2
import msgspec
import pytest

from mainspring import wire
from mainspring.api.auth import issue_token
from mainspring.domain.grants import WorkerGrants
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.domain.task import PythonTask
from mainspring.domain.workflow.spec import Step, WorkflowSpec
from mainspring.intake import jobs, workflows
from tests.conftest import Cluster
from tests.support.pages import NAVIGATION, Page, open_page, sign_in

pytestmark = pytest.mark.anyio

TENANT = 1
HOURLY = ScheduleSpec(every="1h")
SCHEDULE = {"every": "1h"}


@dataclass
class Visitor:
    """A token with a quota of its own: its requests, and its browser."""

    cluster: Cluster
    http: httpx2.AsyncClient
    browser: httpx2.AsyncClient
    name: str

    async def plain_job(self) -> None:
        spec = JobSpec(name=self.name, task=NoopTask())
        await jobs.create(self.cluster.database, spec, tenant=TENANT, by="test")

    async def unscheduled_job(self) -> None:
        """A job that had a schedule in version 1."""
        spec = JobSpec(name=self.name, task=NoopTask(), schedule=HOURLY)
        job_id = await jobs.create(self.cluster.database, spec, tenant=TENANT, by="test")
        await jobs.patch(self.cluster.database, job_id, {"schedule": None}, tenant=TENANT, by="test")

    async def plain_workflow(self) -> None:
        spec = WorkflowSpec(name=self.name, steps={"a": Step(task=NoopTask())})
        await workflows.apply(self.cluster.database, spec, tenant=TENANT, by="test")

    async def unscheduled_workflow(self) -> None:
        spec = WorkflowSpec(name=self.name, steps={"a": Step(task=NoopTask())}, schedule=HOURLY)
        await workflows.apply(self.cluster.database, spec, tenant=TENANT, by="test")
        await self.plain_workflow()

    async def declare(self, schedule: ScheduleSpec | None) -> httpx2.Response:
        spec = JobSpec(name=self.name, task=PythonTask("m:f"), schedule=schedule)
        headers = {"Mainspring-Protocol": wire.PROTOCOL}
        body = {"jobs": [msgspec.to_builtins(spec)]}
        return await self.http.post("/api/v1/worker/jobs", json=body, headers=headers)

    async def yaml(self, path: str, text: str | None = None) -> httpx2.Response:
        """Review a text, then save it."""
        form = posted(await open_page(self.browser, path))
        form["text"] = form["text"].replace("name:", "schedule: {every: 1h}\nname:", 1) if text is None else text
        looked = await self.browser.post(path, data=form | {"do": "review"})
        return await self.browser.post(path, data=posted(Page(looked.text)) | {"do": "save"})


def posted(page: Page) -> dict[str, str]:
    hidden = {i["name"]: i["value"] or "" for i in page.all("input") if i.get("type") == "hidden" and i.get("name")}
    return {str(name): value for name, value in hidden.items()} | page.filled()


async def create_job(v: Visitor) -> httpx2.Response:
    body = {"name": v.name, "task": {"kind": "noop"}, "schedule": SCHEDULE}
    return await v.http.post("/api/v1/jobs", json=body)


async def patch_job(v: Visitor) -> httpx2.Response:
    await v.plain_job()
    return await v.http.patch(f"/api/v1/jobs/{v.name}", json={"schedule": SCHEDULE})


async def roll_a_job_back(v: Visitor) -> httpx2.Response:
    await v.unscheduled_job()
    return await v.http.post(f"/api/v1/jobs/{v.name}/rollback", json={"version": 1})


async def create_workflow(v: Visitor) -> httpx2.Response:
    body = {"name": v.name, "steps": {"a": {"task": {"kind": "noop"}}}, "schedule": SCHEDULE}
    return await v.http.post("/api/v1/workflows", json=body)


async def edit_workflow(v: Visitor) -> httpx2.Response:
    await v.plain_workflow()
    return await create_workflow(v)


async def roll_a_workflow_back(v: Visitor) -> httpx2.Response:
    await v.unscheduled_workflow()
    return await v.http.post(f"/api/v1/workflows/{v.name}/rollback", json={"version": 1})


async def declare_job(v: Visitor) -> httpx2.Response:
    return await v.declare(HOURLY)


async def declare_a_schedule_later(v: Visitor) -> httpx2.Response:
    assert (await v.declare(None)).json()["jobs"][0]["change"] == "created"
    return await v.declare(HOURLY)


async def recurring_blackout(v: Visitor) -> httpx2.Response:
    body = {"job": v.name, "schedule": {"cron": "0 3 * * *"}, "lasts": "1h"}
    await v.plain_job()
    return await v.http.post("/api/v1/blackouts", json=body)


async def job_form(v: Visitor) -> httpx2.Response:
    form = {"csrf": (await open_page(v.browser, "/new")).csrf, "job": v.name, "command": "true", "expression": "@daily"}
    return await v.browser.post("/new", data=form)


async def schedule_form(v: Visitor) -> httpx2.Response:
    await v.plain_job()
    csrf = (await open_page(v.browser, f"/jobs/{v.name}")).csrf
    form = {"csrf": csrf, "expression": "@daily", "version": "1"}
    return await v.browser.post(f"/jobs/{v.name}/schedule", data=form)


async def rollback_form(v: Visitor) -> httpx2.Response:
    await v.unscheduled_job()
    csrf = (await open_page(v.browser, f"/jobs/{v.name}")).csrf
    return await v.browser.post(f"/jobs/{v.name}/rollback", data={"csrf": csrf, "to": "1", "version": "2"})


async def workflow_rollback_form(v: Visitor) -> httpx2.Response:
    await v.unscheduled_workflow()
    csrf = (await open_page(v.browser, f"/workflows/{v.name}")).csrf
    return await v.browser.post(f"/workflows/{v.name}/rollback", data={"csrf": csrf, "to": "1", "version": "2"})


async def job_yaml(v: Visitor) -> httpx2.Response:
    text = f"kind: Job\nmetadata:\n  name: {v.name}\nspec:\n  task: {{kind: noop}}\n  schedule: {{every: 1h}}\n"
    return await v.yaml("/new.yaml", text)


async def job_yaml_edit(v: Visitor) -> httpx2.Response:
    await v.plain_job()
    text = f"kind: Job\nmetadata:\n  name: {v.name}\nspec:\n  task: {{kind: noop}}\n  schedule: {{every: 1h}}\n"
    return await v.yaml(f"/jobs/{v.name}/yaml", text)


async def workflow_yaml(v: Visitor) -> httpx2.Response:
    return await v.yaml("/workflows/new", workflow_text(v))


async def workflow_yaml_edit(v: Visitor) -> httpx2.Response:
    await v.plain_workflow()
    return await v.yaml(f"/workflows/{v.name}/edit", workflow_text(v))


def workflow_text(v: Visitor) -> str:
    return f"name: {v.name}\nschedule: {{every: 1h}}\nsteps:\n  a:\n    task: {{kind: noop}}\n"


WAYS: list[Callable[[Visitor], Awaitable[httpx2.Response]]] = [
    create_job, patch_job, roll_a_job_back, create_workflow, edit_workflow, roll_a_workflow_back, declare_job,
    declare_a_schedule_later, recurring_blackout, job_form, schedule_form, rollback_form, workflow_rollback_form,
    job_yaml, job_yaml_edit, workflow_yaml, workflow_yaml_edit,
]  # fmt: skip


@asynccontextmanager
async def visitor(cluster: Cluster, quota: int) -> AsyncIterator[Visitor]:
    async with cluster.database.connection() as connection:
        scopes = ("read", "write", "worker")
        token = await issue_token(
            connection, tenant=TENANT, name="visitor", scopes=scopes, schedule_quota=quota, grants=WorkerGrants(("*",))
        )
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(base_url=cluster.url, headers=headers, timeout=30) as http,
        httpx2.AsyncClient(base_url=cluster.url, headers=NAVIGATION, timeout=30) as browser,
    ):
        await sign_in(browser, token)
        yield Visitor(cluster, http, browser, f"way-{uuid4().hex[:8]}")


def accepted(answer: httpx2.Response) -> bool:
    if "worker" in str(answer.url):
        (declared,) = answer.json()["jobs"]
        assert (declared["change"] in ("created", "updated")) or "quota" in declared["problem"], declared
        return declared["change"] in ("created", "updated")
    assert answer.status_code in (200, 201, 303, 429), answer.text
    return answer.status_code != 429


@pytest.mark.parametrize("way", WAYS)
async def test_each_way_to_a_schedule_uses_the_quota(
    cluster: Cluster, way: Callable[[Visitor], Awaitable[httpx2.Response]]
) -> None:
    async with visitor(cluster, 1) as v:
        assert accepted(await way(v))
        v.name = f"{v.name}-2"
        assert (await create_job(v)).status_code == 429, "the one schedule of this hour is used"


@pytest.mark.parametrize("way", WAYS)
async def test_each_way_to_a_schedule_is_refused_without_quota(
    cluster: Cluster, way: Callable[[Visitor], Awaitable[httpx2.Response]]
) -> None:
    async with visitor(cluster, 1) as v:
        used, v.name = v.name, f"{v.name}-1"
        assert (await create_job(v)).status_code == 201
        v.name = used
        assert not accepted(await way(v))


async def test_what_adds_no_schedule_needs_no_quota(cluster: Cluster) -> None:
    async with visitor(cluster, 0) as v:
        spec = JobSpec(name=v.name, task=NoopTask(), schedule=HOURLY)
        await jobs.create(cluster.database, spec, tenant=TENANT, by="test")
        path = f"/api/v1/jobs/{v.name}"
        assert (await v.http.patch(path, json={"priority": 7})).status_code == 200
        assert (await v.http.patch(path, json={"schedule": {"every": "2h"}})).status_code == 200, "one for another"
        assert (await v.http.post(f"{path}/pause", json={})).status_code == 200
        assert (await v.http.post(f"{path}/resume", json={})).status_code == 200
