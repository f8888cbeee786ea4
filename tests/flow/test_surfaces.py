"""Create, execute and cancel over the API, the CLI, the web UI and the SDK."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx2
import pytest

from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.client import Client
from mainspring.domain.job import ShellTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.views import executions as execution_views
from mainspring.views import jobs as job_views
from tests.conftest import Cluster
from tests.support.pages import NAVIGATION, Page, posted, sign_in
from tests.support.principals import without_ids

pytestmark = pytest.mark.anyio

PROGRAM = str(Path(sys.executable).with_name("mainspring"))
TASK = {"kind": "shell", "argv": ["echo", "two words"]}


async def by_api(cluster: Cluster, name: str) -> str:
    headers = {"authorization": f"Bearer {cluster.token}"}
    async with httpx2.AsyncClient(base_url=f"{cluster.url}/api/v1", headers=headers, timeout=30) as api:
        spec = {"name": name, "task": TASK, "schedule": {"every": "1h"}, "queue": "nobody"}
        assert (await api.post("/jobs", json=spec)).status_code == 201
        execution: str = (await api.post(f"/jobs/{name}/trigger")).json()["execution_id"]
        assert (await api.post(f"/executions/{execution}/cancel", json={"reason": "enough"})).status_code == 200
    return execution


async def by_command_line(cluster: Cluster, name: str) -> str:
    def run(*words: str) -> str:
        env = {"MAINSPRING_URL": cluster.url, "MAINSPRING_TOKEN": cluster.token}
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=120, env=env, check=True)
        return done.stdout

    def act() -> str:
        run("add", name, "--every", "1h", "--queue", "nobody", "--", "echo", "two words")
        execution = run("run", name, "-o", "name").strip()
        run("executions", "cancel", execution, "--reason", "enough")
        return execution

    return await asyncio.to_thread(act)


async def by_web(cluster: Cluster, name: str) -> str:
    async with httpx2.AsyncClient(base_url=cluster.url, headers=NAVIGATION, timeout=60) as browser:
        await sign_in(browser, cluster.token)
        form = posted(Page((await browser.get("/new")).text))
        form |= {"job": name, "command": "echo 'two words'", "expression": "every 1h", "queue": "nobody"}
        assert (await browser.post("/new", data=form)).status_code == 303
        run = posted(Page((await browser.get(f"/jobs/{name}/run")).text))
        page = (await browser.post(f"/jobs/{name}/run", data=run)).headers["location"]
        cancel = posted(Page((await browser.get(f"{page}/cancel")).text)) | {"reason": "enough"}
        assert (await browser.post(f"{page}/cancel", data=cancel)).status_code == 303
    return str(page.rpartition("/")[2])


async def by_sdk(cluster: Cluster, name: str) -> str:
    def act() -> str:
        with Client(cluster.url, cluster.token) as client:
            client.create_job({"name": name, "task": TASK, "schedule": {"every": "1h"}, "queue": "nobody"})
            execution = client.trigger(name).execution_id
            client.cancel(execution, "enough")
            return str(execution)

    return await asyncio.to_thread(act)


@pytest.mark.requirement(129)
async def test_every_surface_creates_executes_and_cancels_alike(cluster: Cluster) -> None:
    surfaces: list[Callable[[Cluster, str], Awaitable[str]]] = [by_api, by_command_line, by_web, by_sdk]
    for number, surface in enumerate(surfaces):
        name = f"surface-{number}"
        execution = await execution_views.get(cluster.database, await surface(cluster, name), tenant=TENANT)
        job = await job_views.get(cluster.database, name, tenant=TENANT)
        assert (job.spec.task, job.spec.schedule, job.spec.queue) == (
            ShellTask(argv=("echo", "two words")),
            ScheduleSpec(every="1h"),
            "nobody",
        ), surface
        assert (execution.job, execution.state, execution.trigger) == (name, "cancelled", "manual"), surface
        assert without_ids(execution.reason) == "cancelled by test admin: enough", surface
