"""The pages of triggers: the secret once, the address, a signed example, and deliveries."""

from __future__ import annotations

import asyncio
import re

import httpx2
import pytest

from mainspring.domain.job import JobSpec, NoopTask
from tests.conftest import Cluster
from tests.support.pages import open_page

pytestmark = pytest.mark.anyio


async def test_a_webhook_is_made_shown_rotated_paused_and_deleted(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    async with cluster.client() as client:
        await client.create_job(JobSpec(name="deploy", task=NoopTask()))
    assert "No triggers yet" in (await browser.get("/triggers")).text
    csrf = (await open_page(browser, "/triggers")).csrf
    fields = {"csrf": csrf, "name": "pushed", "job": "deploy", "scheme": "github"}
    made = await browser.post("/triggers", data=fields)
    (secret,) = re.findall(r'id="new-secret" class="block">(whsec_[^<]+)<', made.text)
    shown = await browser.get("/triggers/pushed")
    assert secret not in shown.text and "/hooks/" in shown.text
    (command,) = re.findall(r'id="example"[^>]*>([^<]+)<', shown.text)
    command = command.replace("&#34;", '"').replace("&#39;", "'").replace("&gt;", ">")
    env = {"SECRET": secret, "PATH": "/usr/bin:/bin"}
    sent = await asyncio.create_subprocess_exec("bash", "-c", command, env=env, stdout=asyncio.subprocess.PIPE)
    answer, _ = await asyncio.wait_for(sent.communicate(), 30)
    assert b'"outcome":"started"' in answer
    assert "started" in (await browser.get("/triggers")).text
    rotated = await browser.post("/triggers/pushed/rotate", data={"csrf": csrf})
    assert "valid until" in rotated.text and secret not in rotated.text and "whsec_" in rotated.text
    await browser.post("/triggers/pushed/pause", data={"csrf": csrf})
    async with cluster.client() as client:
        assert (await client.get_trigger("pushed")).state == "paused"
        await browser.post("/triggers/pushed/resume", data={"csrf": csrf})
        assert (await client.get_trigger("pushed")).state == "active"
    assert (await browser.post("/triggers/pushed/delete", data={"csrf": csrf})).status_code == 303
    assert (await browser.get("/triggers/pushed")).status_code == 404
    wrong = await browser.post("/triggers", data={**fields, "job": "nothing"})
    assert wrong.status_code == 422 and "here is no job" in wrong.text
