"""Tasks of every kind, from schedule to result, with a real server and worker."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.conftest import Cluster
from tests.support.http_receiver import receiving, reply

pytestmark = pytest.mark.anyio


@pytest.mark.requirement(16)
async def test_the_body_of_a_scheduled_call_holds_the_date_of_its_fire(cluster: Cluster) -> None:
    queue = f"q{uuid4().hex}"
    at = (datetime.now(UTC) + timedelta(seconds=1)).replace(microsecond=0) + timedelta(seconds=1)
    body = {
        "day": "{{execution_date}}",
        "at": "{{fire_at}}",
        "name": "report of {{execution_date}}",
        "n": "{{params.n}}",
    }
    async with receiving(lambda _: reply(body=b'{"ok": true}', content_type="application/json")) as server:
        task = {"kind": "http", "method": "POST", "url": server.url("/{{job}}"), "body": body}
        spec = {
            "name": queue,
            "task": task,
            "queue": queue,
            "schedule": {"at": at.isoformat()},
            "params": {"n": {"type": "integer", "default": 3}},
        }
        async with cluster.client() as client, cluster.worker(queues=(queue,), allow_net=("127.0.0.0/8",)):
            await client.create_job(spec)
            await asyncio.wait_for(server.arrived.wait(), 30)
            (run,) = (await client.history(queue)).items
            done = await client.wait(run.execution_id, timeout_s=30)
    (got,) = server.got
    day = at.date().isoformat()
    assert json.loads(got.body) == {"day": day, "at": f"{day}T{at:%H:%M:%S}Z", "name": f"report of {day}", "n": 3}
    assert got.headers["idempotency-key"] == str(run.execution_id)
    assert (done.state, done.result["body"]) == ("succeeded", {"ok": True})


@pytest.mark.parametrize(
    ("task", "result", "said"),
    [
        ({"kind": "shell", "argv": ["echo", "hi"]}, None, "hi\n"),
        ({"kind": "python", "function": "tests.worker.app.jobs:Greeting", "args": {"name": "{{job}}"}}, "hello", ""),
        ({"kind": "python", "function": "report", "args": {"day": "{{execution_date}}"}}, "eu", "rows for eu\n"),
        ({"kind": "noop"}, None, ""),
    ],
)
async def test_each_kind(cluster: Cluster, task: dict[str, Any], result: str | None, said: str) -> None:
    queue = f"q{uuid4().hex}"
    modules = ("tests.worker.app.jobs",) if task["kind"] == "python" else ()
    async with cluster.client() as client, cluster.worker(queues=(queue,), modules=modules, slots=2):
        await client.create_job({"name": queue, "task": task, "queue": queue})
        run = await client.trigger(queue)
        done = await client.wait(run.execution_id, timeout_s=60)
        text = "".join(c.text for c in (await client.logs(run.execution_id)).chunks if c.stream == "stdout")
    assert (done.state, text) == ("succeeded", said)
    assert (result is None and done.result is None) or str(result) in str(done.result)


@pytest.mark.parametrize(
    ("task", "pointer", "message"),
    [
        ({"kind": "teleport"}, "/task/kind", "teleport"),
        ({"kind": "http", "url": "gopher://x"}, "/task/url", "only http and https"),
        ({"kind": "python", "function": "a b"}, "/task/function", "is not a function"),
    ],
)
async def test_bad_tasks_are_refused_when_they_are_saved(
    cluster: Cluster, task: dict[str, Any], pointer: str, message: str
) -> None:
    from mainspring.domain.errors import Invalid

    async with cluster.client() as client:
        with pytest.raises(Invalid) as caught:
            await client.create_job({"name": f"job-{uuid4()}", "task": task})
    (problem,) = caught.value.problems
    assert problem.pointer == pointer
    assert message in problem.message
    assert problem.hint
