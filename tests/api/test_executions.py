"""Executions over HTTP, run by a real worker that starts real processes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from mainspring import wire
from mainspring.api import live
from mainspring.client import AsyncClient
from mainspring.clock import instant, whole_millis
from mainspring.domain.errors import Conflict, Invalid, NotFound
from mainspring.worker.executors import shell
from tests.conftest import Cluster
from tests.support.api_jobs import ONCE, named, noop, output, script
from tests.support.processes import alive, until, until_async


async def run(client: AsyncClient, spec: dict[str, Any], request: wire.RunNow | None = None) -> wire.Execution:
    """Creates a job, triggers it and waits for its end."""
    job = await client.create_job(spec)
    execution = await client.trigger(job.name, request)
    return await client.wait(execution.execution_id, timeout_s=30)


def pids(file: Path, count: int) -> Callable[[], bool]:
    return lambda: file.exists() and len(file.read_text().split()) == count


def dead(file: Path) -> Callable[[], bool]:
    return lambda: not any(alive(int(pid)) for pid in file.read_text().split())


# Results -----------------------------------------------------------------------------------------------


async def test_a_run_tells_its_times_exit_code_worker_and_output(cluster: Cluster, client: AsyncClient) -> None:
    async with cluster.worker(name="bench"):
        done = await run(client, script("echo out; echo err >&2"))
        assert (done.state, done.exit_code, done.attempt, done.worker) == ("succeeded", 0, 1, "bench")
        assert done.started_at is not None and done.finished_at is not None and done.duration_ms is not None
        assert done.due_at <= done.started_at <= done.finished_at
        assert (await output(client, done), await output(client, done, "stderr")) == ("out\n", "err\n")


@pytest.mark.parametrize(
    ("text", "exit_code", "error"),
    [("exit 3", 3, "exit code 3"), ("kill -9 $$", -9, "ended by SIGKILL"), ("kill -TERM $$", -15, "ended by SIGTERM")],
)
async def test_exit_codes(cluster: Cluster, client: AsyncClient, text: str, exit_code: int, error: str) -> None:
    async with cluster.worker():
        done = await run(client, script(text))
    assert (done.state, done.exit_code, done.error) == ("failed", exit_code, error)


async def test_a_program_or_directory_that_is_not_there_is_named(
    cluster: Cluster, client: AsyncClient, tmp_path: Path
) -> None:
    def task(*argv: str, **more: Any) -> dict[str, Any]:
        return noop(retries=ONCE, task={"kind": "shell", "argv": argv, **more})

    plain = tmp_path / "plain"
    plain.write_text("not a program")
    async with cluster.worker():
        missing = await run(client, task("no-such-program", "x"))
        assert missing.exit_code == 127
        assert missing.error == "no-such-program: no such file or directory on this worker"
        nowhere = await run(client, task("true", cwd="/no/such/place"))
        assert nowhere.error == "/no/such/place: no such file or directory on this worker"
        barred = await run(client, task(str(plain)))
        assert (barred.exit_code, barred.error) == (126, f"{plain}: Permission denied")
        there = await run(client, task("pwd", cwd=str(tmp_path)))
        assert await output(client, there) == f"{tmp_path}\n"


async def test_argv_is_not_read_by_a_shell(cluster: Cluster, client: AsyncClient) -> None:
    argv = ["printf", "%s|", "$HOME", "a b", "{{params.text}}", "; exit 3", "{{params.list}}"]
    request = wire.RunNow(params={"text": "$(exit 4) {{job}}", "list": [1, {"a": None}]})
    async with cluster.worker():
        done = await run(client, noop(task={"kind": "shell", "argv": argv}), request)
        text = await output(client, done)
    assert text == '$HOME|a b|$(exit 4) {{job}}|; exit 3|[1,{"a":null}]|', "filled in once, as it is"


async def test_a_parameter_that_was_not_given_is_named(cluster: Cluster, client: AsyncClient) -> None:
    job = await client.create_job(noop(task={"kind": "shell", "argv": ["echo", "{{params.who}}"]}))
    with pytest.raises(Invalid, match="the parameter 'who' is required"):
        await client.trigger(job.name)
    answer = await client.submit([wire.BatchItem(job=job.name), wire.BatchItem(job=job.name, params={"who": "me"})])
    assert [item.status for item in answer.items] == [422, 201]
    assert answer.items[0].error == "/params/who: the parameter 'who' is required (pass a value, or declare a default)"


async def test_a_task_knows_who_it_is_and_nothing_of_its_worker(
    cluster: Cluster, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAINSPRING_TOKEN", cluster.worker_token)
    monkeypatch.setenv("PGPASSWORD", "hidden")
    spec = script("env", env={"MINE": "{{execution_date}}"})
    async with cluster.worker():
        done = await run(client, spec)
        found = dict(line.split("=", 1) for line in (await output(client, done)).splitlines())
    fire_at = done.fire_at.isoformat().replace("+00:00", "Z")
    ours = {name: value for name, value in found.items() if name.startswith("MAINSPRING_")}
    assert ours.pop("MAINSPRING_SESSION_ID")
    for name in ("MAINSPRING_PROGRESS", "MAINSPRING_CHECKPOINT", "MAINSPRING_ARTIFACTS", "MAINSPRING_INPUTS"):
        assert ours.pop(name).startswith(found["TMPDIR"] + "/")
    assert ours == {
        "MAINSPRING_EXECUTION_ID": str(done.execution_id),
        "MAINSPRING_IDEMPOTENCY_KEY": str(done.execution_id),
        "MAINSPRING_JOB": spec["name"],
        "MAINSPRING_ATTEMPT": "1",
        "MAINSPRING_FIRE_AT": fire_at,
    }
    assert found["MINE"] == fire_at[:10]
    assert "PGPASSWORD" not in found
    assert not any(cluster.worker_token in value for value in found.values())


async def test_a_failing_task_is_tried_again_until_it_succeeds(
    cluster: Cluster, client: AsyncClient, tmp_path: Path
) -> None:
    retries = {"max": 5, "base": "100ms", "jitter": "none"}
    text = f"echo x >> {tmp_path}/tries; echo try $MAINSPRING_ATTEMPT; test $(wc -l < {tmp_path}/tries) = 3"
    async with cluster.worker():
        done = await run(client, script(text, retries=retries))
        assert await output(client, done) == "try 1\ntry 2\ntry 3\n"
    assert (done.state, done.attempt) == ("succeeded", 3)
    tries = [(a.attempt, a.outcome, a.exit_code) for a in done.attempts]
    assert tries == [(1, "failed", 1), (2, "failed", 1), (3, "succeeded", 0)]
    pauses = [
        (b.started_at - a.ended_at).total_seconds() for a, b in zip(done.attempts, done.attempts[1:], strict=False)
    ]
    assert pauses[0] >= 0.1 and pauses[1] >= 0.2, "never before its time"


@pytest.mark.requirement(54)
async def test_the_retry_policy_of_a_job_overrides_the_defaults(cluster: Cluster, client: AsyncClient) -> None:
    """None, two with a cap under the base's double, and as many as the default says, whose first is a minute away."""
    async with cluster.worker():
        none = await run(client, script("exit 1", retries={"max": 0}))
        two = await run(client, script("exit 1", retries={"max": 2, "base": "1s", "cap": "1s", "jitter": "none"}))
        job = await client.create_job(named(task={"kind": "shell", "argv": ["false"]}, retries={"jitter": "none"}))
        made = await client.trigger(job.name)

        async def waits() -> bool:
            return (await client.execution(made.execution_id)).state == "waiting"

        await until_async("the default's first retry", waits, within_s=20)
    assert (none.state, len(none.attempts)) == ("failed", 1)
    assert (two.state, len(two.attempts)) == ("failed", 3)
    assert two.attempts[1].started_at - two.attempts[0].ended_at >= timedelta(seconds=1)
    assert two.attempts[2].started_at - two.attempts[1].ended_at >= timedelta(seconds=1)
    first = await client.execution(made.execution_id)
    assert timedelta(seconds=59) < first.due_at - first.attempts[0].ended_at <= timedelta(seconds=61)


# Submitting --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [None, datetime(2090, 1, 1, tzinfo=UTC)], ids=["now", "later"])
async def test_one_key_is_one_execution(client: AsyncClient, at: datetime | None) -> None:
    job = await client.create_job(noop())
    request = wire.RunNow(key="order-7", at=at, params={"n": 1})
    made = await asyncio.gather(*[client.trigger(job.name, request) for _ in range(20)])
    assert len({execution.execution_id for execution in made}) == 1
    assert (await client.trigger(job.name, request)).execution_id == made[0].execution_id
    assert len((await client.history(job.name)).items) == 1
    with pytest.raises(Conflict) as conflict:
        await client.trigger(job.name, wire.RunNow(key="order-7", at=at, params={"n": 2}))
    assert conflict.value.code == "key_reused"
    other = await client.create_job(noop())
    assert (await client.trigger(other.name, request)).execution_id != made[0].execution_id, "a key is a job's own"
    await client.cancel(made[0].execution_id)
    again = await client.trigger(job.name, request)
    assert (again.execution_id, again.state) == (made[0].execution_id, "cancelled")
    assert len((await client.history(job.name)).items) == 1


async def test_the_key_may_be_a_header(client: AsyncClient, http: httpx2.AsyncClient) -> None:
    job = await client.create_job(noop())
    path, headers = f"/api/v1/jobs/{job.name}/trigger", {"Idempotency-Key": "k"}
    first, second = [(await http.post(path, headers=headers)).json() for _ in range(2)]
    assert first["execution_id"] == second["execution_id"]


async def test_what_was_triggered_before_is_still_looked_at_as_it_is_now(client: AsyncClient) -> None:
    """The second time a job is not looked up; whatever has changed about it is found when the execution is written."""
    spec = noop()
    job = await client.create_job(spec)
    await client.trigger(job.name)
    assert (await client.trigger(job.name)).version == 1
    await client.patch_job(job.name, {"priority": 7})
    together = await asyncio.gather(*[client.trigger(job.name) for _ in range(20)])
    assert {(e.version, e.priority) for e in together} == {(2, 7)}, "also when they come together"
    await client.patch_job(job.name, {"name": f"{job.name}-b"})
    other = await client.create_job(spec)
    assert (await client.trigger(job.name)).job_id == other.job_id, "the name is another job's now"
    assert (await client.trigger(f"{job.name}-b")).job_id == job.job_id
    await client.patch_job(job.name, {"params": {"day": {"type": "string"}}})
    with pytest.raises(Invalid, match="day"):
        await client.trigger(job.name)
    await client.delete_job(job.name)
    with pytest.raises(NotFound):
        await client.trigger(job.name)
    for name in (f"{job.name}-b", str(job.job_id)):
        await client.trigger(name)
        await client.trigger(name)
    await client.delete_job(f"{job.name}-b")
    for name in (f"{job.name}-b", str(job.job_id)):
        with pytest.raises(NotFound):
            await client.trigger(name)


async def test_each_item_of_a_batch_has_its_own_answer(client: AsyncClient) -> None:
    one, two = await client.create_job(noop()), await client.create_job(noop())
    at = datetime(2090, 1, 1, tzinfo=UTC)
    answer = await client.submit(
        [
            wire.BatchItem(job=one.name),
            wire.BatchItem(job="nowhere"),
            wire.BatchItem(job=str(two.job_id), at=at, params={"n": 2}),
            wire.BatchItem(job=one.name, key="k"),
            wire.BatchItem(job=one.name, key="k"),
            wire.BatchItem(job=one.name, key="k", params={"n": 3}),
            wire.BatchItem(job=str(uuid4()), key="k"),
        ]
    )
    assert [item.status for item in answer.items] == [201, 404, 201, 201, 201, 409, 404]
    ids = [item.execution_id for item in answer.items]
    assert ids[3] == ids[4] and ids[1] is ids[5] is ids[6] is None
    assert all(item.error for item in answer.items if item.status != 201)
    first, third = ids[0], ids[2]
    assert first is not None and third is not None
    assert (await client.execution(first)).job == one.name
    planned = await client.execution(third)
    assert (planned.job, planned.state, planned.due_at, planned.params) == (two.name, "waiting", at, {"n": 2})
    assert len((await client.history(one.name)).items) == 2


async def test_the_items_of_a_large_batch_become_the_executions_they_ask_for(client: AsyncClient) -> None:
    named = [await client.create_job(noop(priority=priority)) for priority in (2, 9)]
    soon, late = datetime(2093, 1, 1, tzinfo=UTC), datetime(2094, 1, 1, 0, 0, 0, 5000, tzinfo=UTC)
    nominal = datetime(2020, 2, 2, tzinfo=UTC)
    items = [
        wire.BatchItem(
            job="nowhere" if n == 7 else named[n % 2].name if n % 3 else str(named[n % 2].job_id),
            at=(None, soon, late, nominal)[n % 4],
            fire_at=nominal if n % 5 == 0 else None,
            params={"n": n} if n % 3 == 0 else None,
        )
        for n in range(120)
    ]
    answer = await client.submit(items)
    assert [n for n, item in enumerate(answer.items) if item.status != 201] == [7]
    for n, (item, made) in enumerate(zip(items, answer.items, strict=True)):
        if made.execution_id is None:
            continue
        found = await client.execution(made.execution_id)
        assert (found.job_id, found.priority, found.params) == (named[n % 2].job_id, (2, 9)[n % 2], item.params)
        waits = item.at in (soon, late)
        assert (found.state, found.queued_at is None) == (("waiting", True) if waits else ("queued", False))
        assert found.due_at == (item.at if waits else instant(whole_millis(found.queued_at or soon)))
        assert found.fire_at == (item.fire_at or found.due_at)
    ids = [
        made.execution_id
        for item, made in zip(items, answer.items, strict=True)
        if item.at is None and made.execution_id
    ]
    assert ids == sorted(ids), "executions that are due together keep the order of the batch"
    for job in named:
        await client.delete_job(job.name)


async def test_a_large_batch_wakes_waiting_workers(cluster: Cluster, client: AsyncClient) -> None:
    job = await client.create_job(noop())
    async with cluster.worker():
        first = await client.trigger(job.name)
        await client.wait(first.execution_id, timeout_s=20)
        answer = await client.submit([wire.BatchItem(job=job.name) for _ in range(60)])
        for item in answer.items:
            assert item.execution_id is not None
            assert (await client.wait(item.execution_id, timeout_s=20)).state == "succeeded"


async def test_a_full_batch_is_taken_whole_and_one_more_is_refused(client: AsyncClient) -> None:
    job = await client.create_job(noop())
    items = [wire.BatchItem(job=job.name) for _ in range(1000)]
    answer = await client.submit(items)
    assert len({item.execution_id for item in answer.items}) == 1000
    with pytest.raises(Invalid):
        await client.submit([*items, items[0]])
    await client.delete_job(job.name)


# Reading -----------------------------------------------------------------------------------------------


async def test_pages_visit_each_execution_once_while_others_come_and_end(cluster: Cluster, client: AsyncClient) -> None:
    job, bad = await client.create_job(noop()), await client.create_job(script("exit 1"))
    wanted = [await client.trigger(job.name) for _ in range(12)]
    failing = await client.trigger(bad.name)
    seen: list[wire.Execution] = []
    cursor = None
    async with cluster.worker():
        while True:
            page = await client.executions(job=job.name, limit=5, cursor=cursor)
            seen += page.items
            cursor = page.next_cursor
            if cursor is None:
                break
            await client.trigger(job.name)
        for execution in [*wanted, failing]:
            await client.wait(execution.execution_id, timeout_s=20)
    ids = [execution.execution_id for execution in seen]
    assert ids == sorted({e.execution_id for e in wanted}, reverse=True), "newest first, each once, no newcomers"
    states = {e.state for e in (await client.executions(job=bad.name, state=["failed", "lost"])).items}
    assert states == {"failed"}
    assert (await client.executions(job=bad.name, state=["succeeded"])).items == []


async def test_an_execution_is_found_by_the_beginning_of_its_id(client: AsyncClient) -> None:
    job = await client.create_job(noop())
    at = datetime(2091, 1, 1, tzinfo=UTC)
    one = await client.trigger(job.name, wire.RunNow(at=at))
    assert await client.execution(str(one.execution_id)[:8]) == one
    await client.trigger(job.name, wire.RunNow(at=at))
    with pytest.raises(Invalid) as ambiguous:
        await client.execution(str(one.execution_id)[:8])
    assert ambiguous.value.code == "ambiguous_id"
    with pytest.raises(NotFound):
        await client.execution("00000000")
    beyond = UUID(int=2**128 - 1)  # its time is beyond the range of datetime
    for missing in (client.execution(beyond), client.logs(beyond), client.events(beyond)):
        with pytest.raises(NotFound):
            await missing


async def test_waiting_ends_when_the_execution_does(
    cluster: Cluster, client: AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "POLL_S", 60.0)  # only the news can end the wait
    job = await client.create_job(script(f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"))
    async with cluster.worker():
        execution = await client.trigger(job.name)
        short = await client.execution(execution.execution_id, wait_s=0.05)
        assert short.state in ("queued", "running"), "the wait is over before the execution is"
        waiting = asyncio.create_task(client.execution(execution.execution_id, wait_s=30))
        (tmp_path / "go").touch()
        assert (await asyncio.wait_for(waiting, 10)).state == "succeeded"


@pytest.mark.requirement(63)
async def test_output_is_followed_while_it_is_written(cluster: Cluster, client: AsyncClient, tmp_path: Path) -> None:
    text = f"echo one; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo two >&2; echo three"
    job = await client.create_job(script(text))
    seen = ""
    async with cluster.worker():
        execution = await client.trigger(job.name)
        async for chunk in client.follow_logs(execution.execution_id):
            if not seen:
                assert chunk.text == "one\n"
                assert (await client.execution(execution.execution_id)).state == "running"
                (tmp_path / "go").touch()
            seen += chunk.text
        assert sorted(seen.split()) == ["one", "three", "two"]
        assert (await client.execution(execution.execution_id)).state == "succeeded", "the stream ends with it"


async def test_following_goes_on_from_a_place(cluster: Cluster, client: AsyncClient, http: httpx2.AsyncClient) -> None:
    async with cluster.worker():
        done = await run(client, script("echo one; exit 1", retries={"max": 1, "base": 0}))
    path = f"/api/v1/executions/{done.execution_id}/logs"
    first = (await client.logs(done.execution_id)).chunks[0]
    place = f"{first.attempt}.{first.seq}"
    for request in ({"params": {"place": place}}, {"headers": {"Last-Event-ID": place}}):
        answer = await http.get(path, **request)  # type: ignore[arg-type]
        assert [(c["attempt"], c["text"]) for c in answer.json()["chunks"]] == [(2, "one\n")]
    stream = await http.get(path, params={"follow": "true", "place": place})
    assert stream.headers["content-type"].startswith("text/event-stream")
    events = [part for part in stream.text.split("\n\n") if part.startswith(("id:", "event:"))]
    assert [part.splitlines()[0] for part in events] == ["id: 2.0", "event: end"]
    assert json.loads(events[1].partition("data: ")[2]) == {"state": "failed"}


@pytest.mark.requirement(64)
async def test_large_output_is_kept_in_full_outside_the_rows(cluster: Cluster, client: AsyncClient) -> None:
    """Three-byte characters, so that some of them lie across every border there is."""
    line = "€" * 333 + "\n"
    async with cluster.worker():
        done = await run(client, script(f"yes '{line.strip()}' | head -n 3000"))
        assert await output(client, done) == line * 3000
    async with cluster.database.connection() as connection:
        size = await connection.fetchval(
            "SELECT pg_column_size(h.*) FROM history h WHERE execution_id = $1", done.execution_id
        )
    assert size < 500


async def test_endless_output_is_cut_and_says_so(cluster: Cluster, client: AsyncClient) -> None:
    async with cluster.worker():
        done = await run(client, script("head -c 7000000 /dev/zero | tr '\\0' x"))
        assert done.state == "succeeded", "a loud program is not a failed one"
        assert await output(client, done) == "x" * 5_000_000
        assert "output truncated: more than 5,000,000 bytes" in await output(client, done, "system")


async def test_the_last_words_are_never_lost(
    cluster: Cluster, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Output on its way while the attempt ends arrives before its result does."""
    from mainspring.worker.transport import delivery

    monkeypatch.setattr(delivery, "OUTPUT_S", 0.0)  # as often as can be: most ends meet output on its way
    job = await client.create_job(script("for n in 1 2 3 4 5 6 7 8; do echo $n; sleep 0.00$n; done"))
    async with cluster.worker(slots=4):
        made = [await client.trigger(job.name) for _ in range(20)]
        for execution in made:
            done = await client.wait(execution.execution_id, timeout_s=30)
            assert (await output(client, done)).split() == list("12345678")


async def test_the_stream_shows_executions_start_and_end(
    cluster: Cluster, http: httpx2.AsyncClient, client: AsyncClient
) -> None:
    job = await client.create_job(noop())
    async with cluster.worker(), http.stream("GET", "/api/v1/stream") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.aiter_lines()
        assert (await anext(lines)).startswith(":"), "it says at once that it is open"
        execution = await client.trigger(job.name)
        async for line in lines:
            if line.startswith("data: "):
                seen = json.loads(line.removeprefix("data: "))
                assert seen["execution_id"] == str(execution.execution_id)
                assert seen["event"] == {"running": "execution.started"}.get(
                    seen["state"], f"execution.{seen['state']}"
                )
                if seen["state"] == "succeeded":
                    break


# Ending ------------------------------------------------------------------------------------------------


async def test_cancel_before_the_start(client: AsyncClient) -> None:
    job = await client.create_job(noop())
    queued = await client.trigger(job.name)
    waiting = await client.trigger(job.name, wire.RunNow(at=datetime.now(UTC) + timedelta(days=3)))
    for execution, state in ((queued, "queued"), (waiting, "waiting")):
        assert execution.state == state
        ended = await client.cancel(execution.execution_id, "not needed")
        assert ended.state == "cancelled"
        assert re.fullmatch(r"cancelled by test admin \[[0-9a-f]{8}\]: not needed", ended.reason or "")
        with pytest.raises(Conflict) as conflict:
            await client.cancel(execution.execution_id)
        assert conflict.value.code == "already_final"
        assert (await client.execution(execution.execution_id)).state == "cancelled"


@pytest.mark.requirement(70)
async def test_cancel_while_running_ends_the_process(cluster: Cluster, client: AsyncClient, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    job = await client.create_job(script(f"echo $$ >> {file}; sleep 600 & echo $! >> {file}; wait", retries={"max": 3}))
    async with cluster.worker(slots=1):
        execution = await client.trigger(job.name)
        await until("the processes", pids(file, 2), within_s=20)
        asked = await client.cancel(execution.execution_id, "enough")
        assert asked.cancelling or asked.state == "cancelled"
        done = await client.wait(execution.execution_id, timeout_s=20)
        assert done.state == "cancelled", "no retry of what a person has cancelled"
        await until("the end of the processes", dead(file), within_s=10)


@pytest.mark.requirement(51, 91)
async def test_an_overrun_gets_sigterm_then_its_whole_group_sigkill(
    cluster: Cluster, client: AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "GRACE_S", 0.3)
    file = tmp_path / "pids"
    stubborn = tmp_path / "stubborn"
    stubborn.write_text(f"#!/bin/sh\ntrap '' TERM\necho $$ >> {file}\nwhile :; do sleep 0.05; done\n")
    stubborn.chmod(stat.S_IRWXU)
    text = f"trap 'echo asked' TERM; {stubborn} & echo $$ >> {file}; while :; do sleep 0.05; done"
    async with cluster.worker():
        done = await run(client, script(text, timeout="500ms"))
        assert (done.state, done.error) == ("timed_out", "timed out after 0.5 s")
        assert done.exit_code == -9
        assert done.duration_ms is not None and done.duration_ms >= 800, "the grace was granted"
        assert "asked" in await output(client, done), "and the output of the grace is kept"
        assert pids(file, 2)()
        await until("the end of the processes", dead(file), within_s=10)


async def test_who_heeds_sigterm_needs_no_sigkill(cluster: Cluster, client: AsyncClient) -> None:
    text = "trap 'echo tidy; exit 0' TERM; while :; do sleep 0.02; done"
    async with cluster.worker():
        done = await run(client, script(text, timeout="300ms"))
        assert (done.state, done.exit_code) == ("timed_out", 0)
        assert await output(client, done) == "tidy\n"
        assert done.duration_ms is not None and done.duration_ms < 5000


async def test_a_daemon_does_not_hold_its_attempt(cluster: Cluster, client: AsyncClient, tmp_path: Path) -> None:
    """A process that left the group and holds the pipes open."""
    file = tmp_path / "pids"
    text = f"setsid sh -c 'echo $$ > {file}; exec sleep 600' & while [ ! -s {file} ]; do sleep 0.02; done; echo done"
    async with cluster.worker():
        done = await run(client, script(text))
        assert (done.state, await output(client, done)) == ("succeeded", "done\n")
    pid = int(file.read_text())
    if alive(pid):
        os.kill(pid, 9)


# Order and metrics -------------------------------------------------------------------------------------


@pytest.mark.requirement(52, 71)
async def test_with_one_slot_starts_follow_priority(cluster: Cluster, client: AsyncClient) -> None:
    made = []
    for priority in (3, 10, 0, 7, 5):
        job = await client.create_job(noop(priority=priority))
        made.append((await client.trigger(job.name)).execution_id)
    async with cluster.worker(slots=1):
        done = [await client.wait(execution, timeout_s=20) for execution in made]
    started = sorted(done, key=lambda e: e.started_at or e.due_at)
    assert [e.priority for e in started] == [10, 7, 5, 3, 0]


@pytest.mark.requirement(83)
async def test_one_slot_is_one_thing_at_a_time(cluster: Cluster, client: AsyncClient, tmp_path: Path) -> None:
    file = tmp_path / "evidence"
    job = await client.create_job(script(f"echo begin >> {file}; sleep 0.02; echo end >> {file}"))
    made = [await client.trigger(job.name) for _ in range(8)]
    async with cluster.worker(slots=1):
        for execution in made:
            assert (await client.wait(execution.execution_id, timeout_s=20)).state == "succeeded"
    assert file.read_text().split() == ["begin", "end"] * 8


async def test_the_metrics_of_what_happened(cluster: Cluster, client: AsyncClient, http: httpx2.AsyncClient) -> None:
    names = (
        "mainspring_jobs_scheduled_total", "mainspring_jobs_completed_total", "mainspring_job_duration_seconds_bucket",
        "mainspring_job_queue_size", "mainspring_queue_oldest_seconds", "mainspring_scheduler_is_leader",
        "mainspring_active_workers", "mainspring_scheduling_latency_seconds_bucket",
        "mainspring_start_latency_seconds_bucket", "mainspring_worker_utilization",
        "mainspring_job_execution_errors_total", "mainspring_wheel_entries", "mainspring_tick_seconds_bucket",
        "mainspring_stale_results_total", "mainspring_clock_skew_seconds", "mainspring_executions_rescued_total",
    )  # fmt: skip
    await client.trigger((await client.create_job(noop(queue="nobodys"))).name)
    async with cluster.worker():
        await run(client, noop())
        await run(client, script("exit 1"))
        answer = await http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    series = {line.split("{")[0].split(" ")[0] for line in answer.text.splitlines() if not line.startswith("#")}
    assert not set(names) - series
    values = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#"))
    assert float(values["mainspring_active_workers"]) == 1
    assert float(values['mainspring_job_queue_size{priority="5",queue="nobodys"}']) == 1
    assert float(values['mainspring_jobs_completed_total{status="succeeded"}']) >= 1
    assert float(values['mainspring_job_execution_errors_total{error_type="failed"}']) >= 1


async def test_workers_are_listed(cluster: Cluster, client: AsyncClient) -> None:
    async with cluster.worker(slots=3, name="lister"):
        (found,) = [w for w in (await client.workers()).items if w.name == "lister"]
        assert (found.state, found.slots, found.queues) == ("idle", 3, ["short", "long"])
        assert {"noop", "shell"} <= set(found.kinds)
    (found,) = [w for w in (await client.workers()).items if w.name == "lister"]
    assert found.state == "offline"
