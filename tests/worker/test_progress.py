"""Progress from the attempt to the API, and its cost."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from mainspring import wire
from mainspring.worker import session
from mainspring.worker.progress import FileProgress, Progress
from tests.conftest import Cluster
from tests.support.attempts import attempt
from tests.support.clocks import ManualClock
from tests.support.remote_worker import remote

pytestmark = pytest.mark.anyio


def test_the_rate_is_measured_since_the_first_word() -> None:
    clock = ManualClock()
    progress = Progress(clock)
    given = attempt_given()
    assert progress.as_wire(given) is None
    progress.report(100, 1000)
    assert progress.as_wire(given) == wire.ProgressReport(
        execution_id=given.execution_id, attempt=given.attempt, done=100, total=1000
    )
    clock.at += 10
    progress.report(300, 1000, "on \x1b[31mit\0")
    assert (progress.rate, progress.message) == (20.0, "on  [31mit ")
    clock.at += 10
    progress.report(50, 1000)  # restarted
    clock.at += 5
    progress.report(100, 1000)
    assert progress.rate == 10.0
    for nonsense in (float("nan"), float("inf")):
        progress.report(nonsense)
    assert progress.done == 100


def attempt_given() -> wire.Assignment:
    from mainspring.domain.job import NoopTask

    return attempt(NoopTask()).assignment


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("410/1000 loading rows", (410, 1000, "loading rows")),
        ("41%", (41, 100, None)),
        ("41.5 % nearly", (41.5, 100, "nearly")),
        ("7", (7, None, None)),
        ("1/10\n2/10\n3 / 10 last counts\n\n", (3, 10, "last counts")),
        ("nonsense", (0, None, None)),
        ("", (0, None, None)),
        ("5/0", (5, None, None)),
    ],
)
def test_the_file_of_a_program(tmp_path: Path, text: str, found: tuple[Any, ...]) -> None:
    file = tmp_path / "told"
    progress = FileProgress(file)
    progress.refresh()
    file.write_text(text)
    progress.refresh()
    assert (progress.done, progress.total, progress.message) == found


@pytest.mark.parametrize("how", ["shell", "python"])
async def test_progress_of_a_running_attempt_is_seen_while_it_runs(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(session, "PROGRESS_S", 0.05)
    go, queue = tmp_path / "go", f"q{uuid4().hex}"
    script = f'echo "410/1000 counting" > $MAINSPRING_PROGRESS; while [ ! -e {go} ]; do sleep 0.02; done'
    task: dict[str, Any] = {"kind": "shell", "argv": [script], "shell": True}
    if how == "python":
        task = {"kind": "python", "function": "tests.worker.app.jobs:counting", "args": {"file": str(go)}}
    modules = ("tests.worker.app.jobs",) if how == "python" else ()
    async with cluster.client() as client, cluster.worker(queues=(queue,), modules=modules, slots=1):
        await client.create_job({"name": queue, "task": task, "queue": queue})
        run = await client.trigger(queue)
        async for news in client.follow(run.execution_id):
            if isinstance(news, wire.Progress) and news.done == 410:
                assert (news.total, news.percent, news.message) == (1000, 41.0, "counting")
                found = await client.execution(run.execution_id)
                assert found.progress == news
                listed = await client.history(queue)
                assert [e.progress for e in listed.items] == [news]
                go.touch()
        done = await client.wait(run.execution_id, timeout_s=30)
    assert (done.state, done.progress) == ("succeeded", None), "it is over, so it is not on the way"


async def test_progress_is_one_write_per_heartbeat_whatever_is_reported(cluster: Cluster) -> None:
    """It is stored in the session's row, which every heartbeat writes anyway, not in the execution's."""
    queue = f"q{uuid4().hex}"
    async with cluster.client() as client, remote(cluster, queue=queue) as worker:
        await client.create_job({"name": queue, "task": {"kind": "noop"}, "queue": queue})
        for _ in range(2):
            await client.trigger(queue)
        given = (await worker.poll(free=2)).executions
        assert len(given) == 2
        ids = [one.execution_id for one in given]
        async with cluster.database.connection() as connection:
            places = "SELECT execution_id, ctid::text, xmin::text FROM executions WHERE execution_id = ANY ($1)"
            before = [tuple(row) for row in await connection.fetch(places, ids)]
            for done in (1, 2, 3):
                reports = [wire.ProgressReport(execution_id=i, attempt=1, done=done, total=4, rate=0.5) for i in ids]
                await worker.beat(*ids, progress=reports)
            assert [tuple(row) for row in await connection.fetch(places, ids)] == before
        found = (await client.execution(ids[0])).progress
        assert found == wire.Progress(done=3, total=4, percent=75.0, rate=0.5, eta_s=2.0)
        other = wire.ProgressReport(execution_id=ids[0], attempt=7, done=1)
        await worker.beat(*ids, progress=[other])
        assert (await client.execution(ids[0])).progress is None, "another attempt's word is not this one's"
        for one in given:
            await worker.tell(one)


async def test_what_the_worker_says_too_loudly_is_refused(cluster: Cluster) -> None:
    from mainspring.worker.transport.api_client import Refused

    async with remote(cluster, queue=f"q{uuid4().hex}") as worker:
        long = wire.ProgressReport(execution_id=uuid4(), attempt=1, done=1, message="x" * 201)
        with pytest.raises(Refused):
            await worker.beat(progress=[long])


async def test_an_older_server_is_told_nothing_it_would_refuse() -> None:
    """A server without support for progress would refuse the heartbeat, and the lease would expire."""
    from mainspring.codec import encode

    plain = json.loads(encode(wire.Heartbeat(session_id=uuid4(), running=[], progress=[])))
    assert set(plain) == {"session_id", "running"}
    results = json.loads(encode(wire.Results(session_id=uuid4(), results=[])))
    assert set(results) == {"session_id", "results"}


async def test_the_sdk_in_a_program_reports_too(cluster: Cluster, tmp_path: Path) -> None:
    queue, go = f"q{uuid4().hex}", tmp_path / "go"
    code = (
        "import mainspring as ms, os, threading\n"
        "ms.report_progress(3, 4, ms.context().job)\n"
        f"while not os.path.exists({str(go)!r}): threading.Event().wait(0.02)\n"
    )
    async with cluster.client() as client, cluster.worker(queues=(queue,), slots=1):
        task = {"kind": "shell", "argv": [sys.executable, "-c", code]}
        await client.create_job({"name": queue, "task": task, "queue": queue})
        run = await client.trigger(queue)
        async for news in client.follow(run.execution_id):
            if isinstance(news, wire.Progress):
                assert (news.percent, news.message) == (75.0, queue)
                go.touch()
        assert (await client.wait(run.execution_id, timeout_s=30)).state == "succeeded"
