"""The pages of triggers: the secret once, the address, a signed example, and deliveries."""

from __future__ import annotations

import asyncio
import html
import re
from typing import Any

import httpx2
import pytest

from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.topic import TopicSource
from tests.conftest import Cluster
from tests.support.pages import Page, open_page

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


TOPIC: dict[str, Any] = {"cluster": "main", "topic": "orders", "batch": 10, "within": "2s", "start": "earliest"}


async def test_a_form_makes_a_topic_trigger(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    async with cluster.client() as client:
        await client.create_job(JobSpec(name="bill", task=NoopTask()))
        csrf = (await open_page(browser, "/triggers")).csrf
        fields = {"csrf": csrf, "kind": "topic", "name": "orders", "job": "bill", **TOPIC}
        made = await browser.post("/triggers", data={name: str(value) for name, value in fields.items()})
        assert made.status_code == 200 and "Waiting messages" in made.text
        found = await client.get_trigger("orders")
        assert found.spec.source == TopicSource(**TOPIC)
        assert found.last_error is not None and "adds it with --kafka-triggers" in made.text


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch": 0}, {"batch": 1001}, {"batch": "ten"}, {"within": "10m"}, {"within": "soon"}, {"topic": "a b"},
        {"topic": "x" * 250}, {"cluster": "Main"}, {"cluster": ""}, {"start": "middle"}, {"job": "nothing"},
        {"name": "no/name"},
    ],
    ids=str,
)  # fmt: skip
async def test_the_form_of_a_topic_refuses_what_the_api_refuses(
    cluster: Cluster, browser: httpx2.AsyncClient, wrong: dict[str, object]
) -> None:
    async with cluster.client() as client:
        if not [job for job in (await client.jobs()).items if job.name == "bill"]:
            await client.create_job(JobSpec(name="bill", task=NoopTask()))
    fields: dict[str, object] = {"name": "wrong", "job": "bill", **TOPIC, **wrong}
    source = {"kind": "topic", **{name: fields[name] for name in TOPIC}}
    body = {"name": fields["name"], "job": fields["job"], "source": source}
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {cluster.token}"}, trust_env=False) as http:
        refused = await http.post(f"{cluster.url}/api/v1/triggers", json=body)
    csrf = (await open_page(browser, "/triggers")).csrf
    sent = {"csrf": csrf, "kind": "topic", **{name: str(value) for name, value in fields.items()}}
    page = await browser.post("/triggers", data=sent)
    assert page.status_code == refused.status_code == 422
    problem = refused.json()["errors"][0]
    text = html.unescape(page.text)
    assert problem["message"][1:] in text and problem["hint"] in text, (problem, Page(page.text).text)
