"""The container kind, with real engines."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from mainspring.domain.container import ContainerTask
from mainspring.domain.errors import Invalid
from mainspring.worker.checkpoint import Checkpoint
from mainspring.worker.executors import Done, Work, container
from mainspring.worker.executors.container import ContainerExecutor
from mainspring.worker.transport.api_client import Refused
from mainspring.worker.transport.upload import list_artifacts
from tests.conftest import Cluster
from tests.support.attempts import attempt, host, written
from tests.support.container_engines import IMAGE, Docker, EngineProgram, Podman, needed
from tests.support.http_receiver import receiving, reply
from tests.support.processes import until
from tests.support.worker_program import worker

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=[Podman, Docker])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[EngineProgram]:
    needed(request.param)
    engine: EngineProgram = request.param()
    await engine.start()
    try:
        engine.import_image()
        yield engine
    finally:
        engine.stop()


@pytest.fixture
async def executor(engine: EngineProgram) -> AsyncIterator[ContainerExecutor]:
    executor = ContainerExecutor()
    await executor.start(host(engine=engine.socket))
    yield executor
    await until("every container's removal", lambda: not engine.containers(), within_s=60)
    await executor.stop()


def script(text: str, **more: Any) -> ContainerTask:
    return ContainerTask(image=IMAGE, command=("/bin/sh", "-c", text), **more)


async def see(executor: ContainerExecutor, task: ContainerTask, **more: Any) -> tuple[Done, Work]:
    work = attempt(task, **more)
    done = await executor.execute(work)
    work.finish_output()
    return done, work


async def until_written(work: Work, text: str) -> None:
    seen: list[str] = []

    def there() -> bool:
        seen.append(written(work))
        return text in "".join(seen)

    await until(f"{text!r} in the output", there, within_s=60)


async def test_output_environment_and_exit_code_come_back(executor: ContainerExecutor) -> None:
    task = script("echo $GREETING from $MAINSPRING_JOB; echo oops >&2; exit 3", env={"GREETING": "{{params.word}}"})
    done, work = await see(executor, task, params={"word": "hello"})
    assert (done.outcome, done.exit_code, done.error) == ("failed", 3, "exit code 3: oops")
    chunks = {chunk.stream: chunk.data for chunk in work.take_output()}
    assert chunks == {"stdout": b"hello from the-job\n", "stderr": b"oops\n"}


async def test_a_container_has_no_network_no_privileges_and_its_limits(executor: ContainerExecutor) -> None:
    """A container has its own files, no network and no privileges."""
    look = "ip -o link; cat /proc/self/status; ulimit -n; ls /"
    done, work = await see(executor, script(look, memory="64Mi", cpu=0.5))
    assert done == Done("succeeded", 0)
    seen = written(work)
    assert ": lo:" in seen and "eth" not in seen
    assert "NoNewPrivs:\t1" in seen and "CapEff:\t0000000000000000" in seen
    assert "4096\nbin\n" in seen and "home" not in seen


async def test_output_is_seen_while_it_runs_and_a_cancelled_one_is_gone(
    executor: ContainerExecutor, engine: EngineProgram
) -> None:
    work = attempt(script("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"))
    running = asyncio.create_task(executor.execute(work))
    await until_written(work, "up")
    assert len(engine.containers()) == 1
    work.request_stop("cancelled")
    done = await running
    assert (done.outcome, done.error) == ("cancelled", "cancelled")
    assert written(work) == "bye\n", "it was asked before it was ended"
    assert not engine.containers()


LEAVE = (
    "cat $MAINSPRING_CHECKPOINT; echo 3/4 > $MAINSPRING_PROGRESS; mkdir $MAINSPRING_ARTIFACTS/a;"
    " echo kept > $MAINSPRING_ARTIFACTS/a/file;"
    " echo '{\"row\": 9}' > /mainspring/new; mv /mainspring/new $MAINSPRING_CHECKPOINT"
)


@pytest.mark.parametrize("user", [None, "1000"])
async def test_checkpoint_progress_and_artifacts_are_files_as_for_programs(
    executor: ContainerExecutor, user: str | None
) -> None:
    work = attempt(script(LEAVE, user=user, read_only=True))
    work.checkpoint = Checkpoint({"row": 7})
    done = await executor.execute(work)
    assert (done, written(work)) == (Done("succeeded", 0), '{"row":7}')
    assert work.checkpoint.take() == msgspec.Raw(b'{"row": 9}\n')
    assert work.progress is not None
    assert work.artifacts is not None
    assert [(name, path.read_text()) for name, path in list_artifacts(work.artifacts)] == [("a/file", "kept\n")]
    shutil.rmtree(work.artifacts)


async def test_files_of_others_are_beside_a_container(executor: ContainerExecutor, tmp_path: Path) -> None:
    work = attempt(script('cat "$MAINSPRING_INPUTS/a/b"', user="1000"))
    (tmp_path / "files" / "a").mkdir(parents=True)
    (tmp_path / "files" / "a" / "b").write_text("theirs")
    work.inputs = tmp_path / "files"
    done = await executor.execute(work)
    assert (done, written(work)) == (Done("succeeded", 0), "theirs")


async def test_links_out_of_its_folder_lead_a_container_nowhere(executor: ContainerExecutor, tmp_path: Path) -> None:
    """Following a link, the worker would publish its own files as a checkpoint or an artifact."""
    (tmp_path / "secret").write_text('"the worker\'s"')
    links = f"ln -s {tmp_path}/secret $MAINSPRING_CHECKPOINT; ln -s {tmp_path}/secret $MAINSPRING_PROGRESS;"
    _, work = await see(
        executor, script(f"{links} rm -r $MAINSPRING_ARTIFACTS; ln -s {tmp_path} $MAINSPRING_ARTIFACTS")
    )
    assert work.checkpoint is not None and work.checkpoint.take() is None
    assert "checkpoint not saved" in written(work, "system")
    assert work.artifacts is None
    _, work = await see(executor, script(f"ln -s {tmp_path}/secret $MAINSPRING_ARTIFACTS/file"))
    assert work.artifacts is not None
    with pytest.raises(Refused, match="not a regular file"):
        list_artifacts(work.artifacts)
    shutil.rmtree(work.artifacts)


async def test_what_ignores_sigterm_is_killed_when_its_time_is_over(
    executor: ContainerExecutor, engine: EngineProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "GRACE_S", 0.2)
    done, _ = await see(executor, script("trap '' TERM; while :; do sleep 0.05; done"), timeout_s=1.5)
    assert (done.outcome, done.error) == ("timed_out", "timed out after 1.5 s")
    assert not engine.containers()


async def test_a_memory_hog_is_told_as_such(executor: ContainerExecutor) -> None:
    done, _ = await see(executor, script("a=x; while :; do a=$a$a; done", memory="32Mi"))
    assert (done.outcome, done.exit_code) == ("failed", 137)
    assert done.error is not None and "out of memory" in done.error and "32Mi" in done.error


async def test_a_fork_bomb_stays_inside(executor: ContainerExecutor) -> None:
    """Every child ends after a second, in case the limit does not work."""
    done, work = await see(executor, script("i=0; while [ $i -lt 60 ]; do sleep 1 & i=$((i+1)); done; wait", pids=20))
    assert done.outcome == "failed"
    assert "can't fork" in written(work, "stderr")


async def test_a_flood_of_output_costs_the_worker_no_memory(executor: ContainerExecutor) -> None:
    done, work = await see(executor, script("head -c 100000000 /dev/zero"))
    assert done == Done("succeeded", 0)
    chunks = work.take_output()
    assert sum(len(chunk.data) for chunk in chunks if chunk.stream == "stdout") == 5_000_000
    assert b"output truncated" in chunks[-1].data


async def test_a_missing_image_says_why_it_was_not_fetched(engine: EngineProgram, executor: ContainerExecutor) -> None:
    done, _ = await see(executor, ContainerTask(image="localhost/nothing:1", pull="never"))
    assert (done.outcome, done.retry) == ("failed", False)
    assert done.error == "the image localhost/nothing:1 is not on this worker, and the task says pull: never"
    done, _ = await see(executor, ContainerTask(image="127.0.0.1:1/nothing:1"))
    assert done.error is not None and done.error.startswith("cannot pull the image 127.0.0.1:1/nothing:1: ")
    strict = ContainerExecutor()
    await strict.start(host(engine=engine.socket, pull=False))
    done, _ = await see(strict, ContainerTask(image="localhost/nothing:1"))
    await strict.stop()
    assert done.error is not None and "--no-pull" in done.error


async def test_a_program_that_is_not_in_the_image_is_named(executor: ContainerExecutor) -> None:
    done, _ = await see(executor, ContainerTask(image=IMAGE, command=("/bin/none",)))
    assert (done.outcome, done.exit_code) == ("failed", 125)
    assert done.error is not None and "/bin/none" in done.error


async def test_an_engine_that_restarts_in_mid_flight_loses_no_container(
    executor: ContainerExecutor, engine: EngineProgram
) -> None:
    work = attempt(script("echo up; sleep 5; exit 7"))
    running = asyncio.create_task(executor.execute(work))
    await until_written(work, "up")
    await engine.runs_one()
    engine.kill()
    await engine.start()
    done = await running
    assert (done.outcome, done.exit_code) == ("failed", 7)
    assert "the container engine restarted" in written(work, "system")


async def test_an_engine_that_stays_away_fails_the_attempt_and_the_container_is_removed_later(
    executor: ContainerExecutor, engine: EngineProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "ENGINE_RESTART_S", 0.5)
    monkeypatch.setattr(container, "REMOVE_RETRY_S", 0.1)
    work = attempt(script("echo up; sleep 600"))
    running = asyncio.create_task(executor.execute(work))
    await until_written(work, "up")
    await engine.runs_one()
    engine.kill()
    done = await running
    await engine.start()
    assert done.outcome == "failed" and done.error is not None and "did not return" in done.error
    # The fixture checks that no container is left.


async def test_an_engine_that_is_not_there_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"does not answer.*start the engine first"):
        await ContainerExecutor().start(host(engine=str(tmp_path / "none.sock")))


CONTAINER = {"kind": "container", "image": IMAGE, "command": ["/bin/sh", "-c", "echo up; sleep 600"]}


async def test_a_killed_worker_leaves_no_container(cluster: Cluster, engine: EngineProgram, tmp_path: Path) -> None:
    """The guardian removes them; if it died too, the next worker on this machine does."""
    queue = f"q{uuid4().hex}"
    options = ("-q", queue, "--name", queue, "--engine", f"unix://{engine.socket}")
    async with cluster.client() as client:
        await client.create_job({"name": queue, "task": CONTAINER, "queue": queue})
        await client.trigger(queue)
        async with worker(tmp_path, cluster.url, cluster.worker_token, *options) as program:
            assert "container" in next(w for w in (await client.workers()).items if w.name == queue).kinds
            await until("a container", lambda: len(engine.containers()) == 1, within_s=60)
            program.send(signal.SIGKILL)
            await until("its removal by the guardian", lambda: not engine.containers(), within_s=60)
        async with worker(tmp_path, cluster.url, cluster.worker_token, *options) as program:
            await until("a container", lambda: len(engine.containers()) == 1, within_s=60)
            (orphan,) = engine.containers()
            for pid in (program.guardian, program.process.pid):
                os.kill(pid, signal.SIGKILL)
            await program.ended()
        assert engine.containers() == [orphan]
        other = ("-q", f"{queue}x", "--engine", f"unix://{engine.socket}")
        async with worker(tmp_path, cluster.url, cluster.worker_token, *other):
            assert not engine.containers()


async def test_a_container_runs_end_to_end(cluster: Cluster, engine: EngineProgram) -> None:
    queue = f"q{uuid4().hex}"
    task = {"kind": "container", "image": IMAGE, "command": ["/bin/echo"], "args": ["on {{execution_date}}"]}
    async with cluster.client() as client, cluster.worker(queues=(queue,), engine=engine.socket):
        await client.create_job({"name": queue, "task": task, "queue": queue})
        done = await client.wait((await client.trigger(queue)).execution_id, timeout_s=30)
        logs = await client.logs(done.execution_id)
    assert (done.state, done.exit_code) == ("succeeded", 0)
    assert logs.chunks[0].text == f"on {done.fire_at.date()}\n"


@pytest.mark.requirement(93)
async def test_attempts_share_neither_files_nor_a_network(cluster: Cluster, engine: EngineProgram) -> None:
    """In a container, as a process with its own folder, with limits, and with bwrap."""
    queue = f"q{uuid4().hex}"
    look = "echo $TMPDIR; ulimit -n; cat /proc/net/dev | tail -n +3 | cut -d: -f1; touch /tmp/shared && ls -a /tmp"
    sandbox = {"isolation": "bwrap", "open_files": 64}
    jobs: dict[str, dict[str, Any]] = {
        "container": {"task": {"kind": "container", "image": IMAGE, "command": ["/bin/sh", "-c", look]}},
        "process": {"task": {"kind": "shell", "shell": True, "argv": [look]}, "sandbox": sandbox},
    }
    seen: dict[str, list[list[str]]] = {}
    async with cluster.client() as client, cluster.worker(queues=(queue,), engine=engine.socket) as _:
        for name, spec in jobs.items():
            await client.create_job({"name": f"{queue}-{name}", "queue": queue, "retries": {"max": 0}, **spec})
            for _ in range(2):
                done = await client.wait((await client.trigger(f"{queue}-{name}")).execution_id, timeout_s=60)
                assert (done.state, done.error) == ("succeeded", None)
                text = "".join(chunk.text for chunk in (await client.logs(done.execution_id)).chunks)
                seen.setdefault(name, []).append(text.split())
    for name, (first, second) in seen.items():
        assert [word for word in first if word in ("lo", "eth0")] == ["lo"], name
        assert "shared" in first and len(first) == len(second), "the second found nothing of the first"
    assert seen["process"][0][0] != seen["process"][1][0], "a folder of its own"
    assert seen["process"][0][1] == "64"


@pytest.mark.requirement(48)
async def test_every_kind_of_task_has_a_passing_example(
    cluster: Cluster, engine: EngineProgram, tmp_path: Path
) -> None:
    queue = f"q{uuid4().hex}"
    (tmp_path / "example.py").write_text("def add(a: int, b: int) -> int:\n    return a + b\n")
    more: dict[str, Any] = {"modules": (str(tmp_path / "example.py"),), "allow_net": ("127.0.0.0/8",)}
    async with (
        receiving(lambda _: reply(body=b"hi")) as receiver,
        cluster.client() as client,
        cluster.worker(queues=(queue,), engine=engine.socket, **more),
    ):
        tasks: dict[str, dict[str, Any]] = {
            "shell": {"argv": ["echo", "hi"]},
            "http": {"url": receiver.url()},
            "python": {"function": "example:add", "args": {"a": 1, "b": 2}},
            "container": {"image": IMAGE, "command": ["/bin/true"]},
            "noop": {},
        }
        ended = {}
        for kind, settings in tasks.items():
            await client.create_job({"name": f"{queue}-{kind}", "task": {"kind": kind, **settings}, "queue": queue})
            run = await client.trigger(f"{queue}-{kind}")
            ended[kind] = await client.wait(run.execution_id, timeout_s=60)
    assert {kind: done.state for kind, done in ended.items()} == dict.fromkeys(tasks, "succeeded")
    assert (ended["python"].result, ended["http"].result["body"]) == (3, "hi")
