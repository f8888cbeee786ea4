"""artifacts_in: files of earlier executions are there when an attempt begins, or it fails with the reason."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import msgspec
import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.artifact import ArtifactIn
from mainspring.domain.errors import Invalid
from mainspring.domain.job import JobSpec, ShellTask, check
from mainspring.domain.workflow.plan import compile_workflow
from mainspring.domain.workflow.spec import WorkflowSpec
from tests.conftest import Cluster

pytestmark = pytest.mark.anyio

READER = """
import mainspring as ms

@ms.job()
def read(source: str):
    return ms.context().input("in/report").read_text()
"""
WANTED = tuple[ArtifactIn, ...]
LEAVE = 'mkdir "$MAINSPRING_ARTIFACTS/a"; echo "of $MAINSPRING_EXECUTION_ID" > "$MAINSPRING_ARTIFACTS/a/report"'


class DownloadBench:
    """A queue with a worker and jobs."""

    def __init__(self, client: AsyncClient, queue: str) -> None:
        self.client = client
        self.queue = queue

    async def run(
        self, name: str, task: dict[str, Any], given: dict[str, Any] | None = None, **more: Any
    ) -> wire.Execution:
        job = f"{self.queue}-{name}"
        await self.client.create_job({"name": job, "task": task, "queue": self.queue, "retries": {"max": 0}} | more)
        return await self.again(name, given)

    async def again(self, name: str, given: dict[str, Any] | None = None) -> wire.Execution:
        execution = await self.client.trigger(f"{self.queue}-{name}", wire.RunNow(params=given or {}))
        return await self.client.wait(execution.execution_id, timeout_s=60)

    async def shell(self, name: str, script: str, **more: Any) -> wire.Execution:
        return await self.run(name, {"kind": "shell", "shell": True, "argv": [script]}, **more)

    async def output(self, execution: wire.Execution) -> str:
        return "".join(chunk.text for chunk in (await self.client.logs(execution.execution_id)).chunks)


@pytest.fixture
async def bench(cluster: Cluster, tmp_path: Path) -> AsyncIterator[DownloadBench]:
    (tmp_path / "reader.py").write_text(READER)
    queue = f"q{uuid4().hex}"
    async with (
        cluster.client() as client,
        cluster.worker(queues=(queue,), name=queue, modules=(str(tmp_path / "reader.py"),)),
    ):
        yield DownloadBench(client, queue)


@pytest.mark.parametrize("sandbox", [None, {}])
async def test_a_program_finds_what_a_job_left_last(bench: DownloadBench, sandbox: dict[str, Any] | None) -> None:
    await bench.shell("source", LEAVE)
    newest = await bench.again("source")
    wanted = [{"name": "a/report", "job": f"{bench.queue}-source", "as": "report"}]
    done = await bench.shell("reader", 'cat "$MAINSPRING_INPUTS/report"', artifacts_in=wanted, sandbox=sandbox)
    assert (done.state, done.error) == ("succeeded", None)
    assert await bench.output(done) == f"of {newest.execution_id}\n"


@pytest.mark.parametrize("sandbox", [None, {"memory": "512Mi"}])
async def test_a_function_finds_what_an_execution_left(bench: DownloadBench, sandbox: dict[str, Any] | None) -> None:
    source = await bench.shell("source", LEAVE)
    wanted = [{"name": "a/report", "execution": "{{params.source}}", "as": "in/report"}]
    done = await bench.run(
        "read",
        {"kind": "python", "function": "reader:read"},
        {"source": str(source.execution_id)},
        artifacts_in=wanted,
        params={"source": {}},
        sandbox=sandbox,
    )
    assert (done.state, done.result) == ("succeeded", f"of {source.execution_id}\n"), done.error


async def test_what_is_not_there_is_named_and_nothing_begins(bench: DownloadBench) -> None:
    await bench.shell("source", LEAVE)
    wanted = [{"name": "b", "job": f"{bench.queue}-source"}]
    done = await bench.shell("reader", "echo begun", artifacts_in=wanted)
    assert done.state == "failed" and done.error is not None
    assert f"cannot fetch the artifact 'b' of the job {bench.queue}-source" in done.error
    assert "left an artifact 'b'" in done.error
    assert await bench.output(done) == ""


async def test_nobody_gets_files_for_an_attempt_of_another(bench: DownloadBench, cluster: Cluster) -> None:
    source = await bench.shell("source", LEAVE)
    other = {
        "session_id": str(uuid4()),
        "execution_id": str(source.execution_id),
        "attempt": "1",
        "name": "a/report",
        "source": str(source.execution_id),
    }
    async with httpx2.AsyncClient(base_url=cluster.url) as http:
        headers = {"Authorization": f"Bearer {cluster.worker_token}"}
        answer = await http.get("/api/v1/worker/artifacts", params=other, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (409, "session_ended")


async def test_a_step_takes_a_file_of_an_earlier_one(bench: DownloadBench) -> None:
    steps = {
        "extract": {"task": {"kind": "shell", "shell": True, "argv": [LEAVE]}, "queue": bench.queue},
        "load": {
            "task": {"kind": "shell", "shell": True, "argv": ['cat "$MAINSPRING_INPUTS/a/report"']},
            "queue": bench.queue,
            "needs": ["extract"],
            "artifacts_in": [{"name": "a/report", "step": "extract"}],
        },
    }
    await bench.client.apply_workflow({"name": bench.queue, "steps": steps})
    run = await bench.client.start_run(bench.queue)
    ended = await bench.client.wait(run.run_id, timeout_s=60)
    assert (ended.state, ended.error) == ("succeeded", None)
    extract, load = [step.execution_id for step in (await bench.client.run(run.run_id)).steps]
    assert load is not None
    assert await bench.output(await bench.client.execution(load)) == f"of {extract}\n"


@pytest.mark.parametrize(
    ("wanted", "pointer"),
    [
        ([{"name": "../x", "job": "j"}], "/artifacts_in/0/name"),
        ([{"name": "x", "job": "j", "as": "/etc/x"}], "/artifacts_in/0/as"),
        ([{"name": "x"}], "/artifacts_in/0"),
        ([{"name": "x", "job": "j", "execution": "{{params.x}}"}], "/artifacts_in/0"),
        ([{"name": "x", "execution": "7"}], "/artifacts_in/0/execution"),
        ([{"name": "x", "job": "j"}, {"name": "y", "job": "j", "as": "x/y"}], "/artifacts_in/0"),
        ([{"name": "x", "job": "j"}] * 21, "/artifacts_in"),
    ],
)
def test_what_can_not_be_is_refused(wanted: list[dict[str, Any]], pointer: str) -> None:
    with pytest.raises(Invalid) as refused:
        check(JobSpec(name="x", task=ShellTask(argv=("true",)), artifacts_in=msgspec.convert(wanted, WANTED)))
    assert refused.value.problems[0].pointer == pointer


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"name": "x", "step": "extrakt"}, "unknown step 'extrakt'"),
        ({"name": "x", "step": "late"}, "late does not come before load"),
        ({"name": "x", "step": "many"}, "'many' has several executions"),
        ({"name": "x", "execution": "{{params.x}}"}, "the source is a step, a job or a fixed execution id"),
    ],
)
def test_a_step_that_can_have_no_such_file_is_refused(wanted: dict[str, Any], message: str) -> None:
    task = {"kind": "shell", "argv": ["true"]}
    steps = {
        "extract": {"task": task},
        "many": {"task": task, "map": "[1, 2]"},
        "load": {"task": task, "needs": ["extract", "many"], "artifacts_in": [wanted]},
        "late": {"task": task, "needs": ["load"]},
    }
    with pytest.raises(Invalid, match=message) as refused:
        compile_workflow(msgspec.convert({"name": "w", "steps": steps}, WorkflowSpec))
    assert refused.value.problems[0].pointer.startswith("/steps/load/artifacts_in/0")
