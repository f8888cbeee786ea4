"""A kind from another package, installed as users install it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from mainspring import wire
from mainspring.domain.errors import Invalid
from tests.conftest import Cluster
from tests.support.worker_program import worker

pytestmark = pytest.mark.anyio

EXAMPLE = Path(__file__).parents[2] / "examples" / "word-count"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the package and its entry point; its dependencies are already installed."""
    target = tmp_path_factory.mktemp("plugin")
    command = ["uv", "pip", "install", "--quiet", "--python", sys.executable, "--no-deps", "--no-build-isolation"]
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, *command[1:], "--target", str(target), str(EXAMPLE)], check=True, timeout=120)
    return str(target)


@pytest.mark.requirement(50)
async def test_a_package_adds_a_kind_without_a_change_to_the_core(
    cluster: Cluster, installed: str, tmp_path: Path
) -> None:
    """A job is saved before any worker has the kind, assigned only to those that do, and then checked by its schema."""
    queue = f"q{uuid4().hex}"
    task = {"kind": "plugin", "type": "word-count", "settings": {"text": "{{params.text}}", "least": 3}}
    params = {"text": {"type": "string"}}
    async with cluster.client() as client:
        await client.create_job({"name": queue, "task": task, "queue": queue, "params": params})
        run = await client.trigger(queue, wire.RunNow(params={"text": "to be or not to be said"}))
        async with cluster.worker(queues=(queue,), name="plain"):
            # It serves the queue, but lacks the kind.
            await client.create_job({"name": f"{queue}x", "task": {"kind": "noop"}, "queue": queue})
            await client.wait((await client.trigger(f"{queue}x")).execution_id, timeout_s=30)
            assert (await client.execution(run.execution_id)).state == "queued"
            why = await client.why(run.execution_id)
            assert any("word-count" in reason.message for reason in why.reasons)
        options = ("-q", queue, "--name", f"{queue}w")
        async with worker(tmp_path, cluster.url, cluster.worker_token, *options, path=installed):
            done = await client.wait(run.execution_id, timeout_s=30)
            assert (done.state, done.result) == ("succeeded", {"words": 2})
            assert (await client.logs(run.execution_id)).chunks[0].text == "2 words\n"
            assert "word-count" in next(w for w in (await client.workers()).items if w.name == f"{queue}w").kinds
            bad = task | {"settings": {"text": "a", "least": 0, "most": 1}}
            with pytest.raises(Invalid) as refused:
                await client.create_job({"name": f"{queue}y", "task": bad, "queue": queue})
            assert [p.pointer for p in refused.value.problems] == ["/task/settings/least", "/task/settings/most"]


async def test_settings_that_only_the_attempt_knows_fail_it_with_the_reason(
    cluster: Cluster, installed: str, tmp_path: Path
) -> None:
    queue = f"q{uuid4().hex}"
    task = {"kind": "plugin", "type": "word-count", "settings": {"text": "a", "least": "{{params.least}}"}}
    async with cluster.client() as client:
        params = {"least": {"type": "integer"}}
        await client.create_job({"name": queue, "task": task, "queue": queue, "params": params})
        run = await client.trigger(queue, wire.RunNow(params={"least": 0}))
        async with worker(tmp_path, cluster.url, cluster.worker_token, "-q", queue, path=installed):
            done = await client.wait(run.execution_id, timeout_s=30)
    assert (done.state, done.attempt) == ("failed", 1)
    assert done.error == "/settings/least: 0 is out of range (at least 1)"


@pytest.mark.parametrize("type_", ["shell", "Upper", "plugin", ""])
async def test_a_type_that_is_none_is_refused(cluster: Cluster, type_: str) -> None:
    async with cluster.client() as client:
        with pytest.raises(Invalid) as refused:
            await client.create_job({"name": "x", "task": {"kind": "plugin", "type": type_}})
    assert refused.value.problems[0].pointer == "/task/type"
