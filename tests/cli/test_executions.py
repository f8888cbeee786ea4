"""`run`, `executions`, `events`, `workers`, `doctor` and `ui` against a scripted server."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from mainspring import wire
from mainspring.display.text import progress_text
from mainspring.domain.execution import State
from tests.support.invoke import Invoke
from tests.support.scripted_server import (
    EXECUTION_ID,
    JOB_ID,
    T0,
    Asked,
    Reply,
    Scripted,
    event,
    events,
    execution,
    problem,
    running,
)

ONE = f"/api/v1/executions/{EXECUTION_ID}"
TRIGGER = "/api/v1/jobs/hello/trigger"
PROGRAM = str(Path(sys.executable).with_name("mainspring"))


@pytest.fixture(autouse=True)
def _trigger(server: Scripted) -> None:
    server.on("POST", TRIGGER, Reply(running(state="queued", started_at=None), 201))


def chunk(text: str, **changes: Any) -> wire.LogChunk:
    return wire.LogChunk(**{"attempt": 1, "seq": 1, "stream": "stdout", "text": text, **changes})


def test_run_prints_the_execution_and_does_not_wait(server: Scripted, invoke: Invoke) -> None:
    result = invoke(
        "run", "hello", "-p", "n=5", "-p", "s=a=b", "-p", 'l=["x"]', "--key", "k", "--at", "2027-01-01T00:00"
    )
    assert result.exit_code == 0
    assert result.stdout == f"{EXECUTION_ID}  hello  ◌ queued\n"
    assert server.last().json() == {
        "at": "2027-01-01T00:00:00Z",
        "fire_at": None,
        "key": "k",
        "params": {"n": 5, "s": "a=b", "l": ["x"]},
        "reason": "",
    }
    assert invoke("run", "hello", "-o", "name").stdout == f"{EXECUTION_ID}\n"
    assert server.last().json() == {"at": None, "fire_at": None, "key": None, "params": None, "reason": ""}
    assert invoke("run", "hello", "-p", "n").exit_code == 2
    assert invoke("run", "hello", "--at", "soon").exit_code == 2


@pytest.mark.parametrize(
    ("state", "code"),
    [("succeeded", 0), ("failed", 10), ("lost", 10), ("skipped", 10), ("cancelled", 11), ("timed_out", 12)],
)
def test_the_exit_code_tells_how_it_ended(server: Scripted, invoke: Invoke, state: State, code: int) -> None:
    server.on("GET", ONE, [Reply(running()), Reply(execution(state=state))])
    result = invoke("run", "hello", "--wait", "-o", "json")
    assert result.exit_code == code
    assert msgspec.json.decode(result.stdout)["state"] == state
    waited = invoke("executions", "wait", str(EXECUTION_ID))
    assert waited.exit_code == code
    assert "hello" in waited.stdout


def test_a_wait_that_takes_too_long_says_so(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", ONE, Reply(running()))
    for words in (["run", "hello", "--wait"], ["executions", "wait", str(EXECUTION_ID)]):
        result = invoke(*words, "--timeout", "10ms")
        assert (result.exit_code, result.stdout) == (8, "")
        assert "still running" in result.stderr


def test_follow_shows_each_stream_where_it_belongs(server: Scripted, invoke: Invoke) -> None:
    server.on(
        "GET",
        ONE + "/logs",
        events(
            event("chunk", chunk("one\n"), "1"),
            event("chunk", chunk("oops\n", stream="stderr"), "2"),
            event("chunk", chunk("again", attempt=2), "3"),
            event("end", {"state": "failed"}),
        ),
    )
    server.on("GET", ONE, Reply(execution(state="failed", exit_code=3)))
    result = invoke("run", "hello", "--follow")
    assert result.exit_code == 10
    assert result.stdout == "one\nagain"
    first, oops, attempt, last = result.stderr.splitlines()
    assert (oops, attempt) == ("oops", "— attempt 2 —")
    assert str(EXECUTION_ID) in first
    assert "failed: exit 3" in last
    assert invoke("run", "hello", "--follow", "-o", "json").exit_code == 2


def test_follow_shows_how_far_it_is(server: Scripted, invoke: Invoke) -> None:
    """On a terminal the line is rewritten; elsewhere each ten percent is a message."""
    reports = [
        wire.Progress(done=done, total=1000, percent=done / 10, rate=50.0, eta_s=(1000 - done) / 50)
        for done in (410, 411, 420, 500)
    ]
    server.on("GET", ONE + "/logs", events(*(event("progress", p) for p in reports), event("end", {})))
    server.on("GET", ONE, Reply(execution()))
    result = invoke("run", "hello", "--follow")
    lines = [line for line in result.stderr.splitlines() if "left" in line]
    assert lines == ["41 % · 410/1000 · ~12 s left", "50 % · 500/1000 · ~10 s left"]


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (wire.Progress(done=41, total=100, percent=41.0, message="on\x1bit"), "41 % · on\\x1bit"),
        (wire.Progress(done=7), "7 done"),
        (wire.Progress(done=1000, total=1000, percent=100.0, rate=1.0, eta_s=0.0), "100 % · 1000/1000"),
        (wire.Progress(done=1, total=7200, percent=0.0, rate=1.0, eta_s=7199.0), "0 % · 1/7200 · ~1 h 59 min left"),
    ],
)
def test_progress_in_one_line(progress: wire.Progress, text: str) -> None:
    assert progress_text(progress) == text


def test_follow_ends_when_its_time_is_over(server: Scripted, invoke: Invoke) -> None:
    over = threading.Event()

    def output() -> Iterator[bytes]:
        yield event("chunk", chunk("working\n"), "1")
        over.wait()

    server.on("GET", ONE + "/logs", lambda _: Reply(content_type="text/event-stream", stream=output()))
    server.on("GET", ONE, Reply(running()))
    try:
        result = invoke("run", "hello", "--follow", "--timeout", "200ms")
    finally:
        over.set()
    assert (result.exit_code, result.stdout) == (8, "working\n")
    assert "still running" in result.stderr


def test_an_interrupt_leaves_the_execution_and_says_how_to_cancel_it(server: Scripted, tmp_path: Path) -> None:
    over = threading.Event()

    def output() -> Iterator[bytes]:
        yield event("chunk", chunk("working\n"), "1")
        over.wait()

    server.on("GET", ONE + "/logs", lambda _: Reply(content_type="text/event-stream", stream=output()))
    words = [PROGRAM, "--url", server.url, "run", "hello", "--follow"]
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={"HOME": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    over.set()
    assert process.returncode == 130
    assert (
        said.splitlines()[-1] == f"the execution continues; cancel it with: mainspring executions cancel {EXECUTION_ID}"
    )
    assert not [asked for asked in server.asked if asked.path.endswith("/cancel")]


def test_list_filters_and_last_is_resolved(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", "/api/v1/executions", Reply(wire.Page(items=[execution(), running()])))
    result = invoke("executions", "list", "--job", "hello", "--state", "failed", "--state", "lost", "--limit", "7")
    assert server.last().query == {"job": ["hello"], "state": ["failed", "lost"], "limit": ["7"]}
    assert [line.split()[2] for line in result.stdout.splitlines()[1:]] == ["✔", "▶"]
    assert invoke("executions", "list", "--state", "done").exit_code == 2
    server.on("GET", ONE, Reply(execution()))
    server.on("GET", "/api/v1/executions:last", Reply(execution()))
    assert str(EXECUTION_ID) in invoke("executions", "get", "@last").stdout


def test_get_shows_attempts_and_whatever_is_known(server: Scripted, invoke: Invoke) -> None:
    first = wire.Attempt(
        attempt=1,
        outcome="failed",
        exit_code=2,
        error="bad\x07",
        started_at=T0,
        ended_at=T0 + timedelta(seconds=1.5),
        worker="local",
    )
    server.on("GET", "/api/v1/executions/0193a4", Reply(execution(attempts=[first], params={"n": 1}, result=[2])))
    shown = invoke("executions", "get", "0193a4").stdout
    for text in (
        "✔ succeeded",
        "start delay 3 ms",
        "duration 6 ms",
        "exit code   0",
        '{"n":1}',
        "[2]",
        "12:00:05.000  1.5 s  exit 2",
        "bad\\x07",
    ):
        assert text in shown
    ambiguous = problem(409, "ambiguous", "0193a4 is the beginning of several ids")
    server.on("GET", "/api/v1/executions/0193a4", ambiguous)
    assert invoke("executions", "get", "0193a4").exit_code == 5


def test_logs_reads_every_page_and_keeps_the_streams_apart(server: Scripted, invoke: Invoke) -> None:
    pages = {
        "": wire.Logs(chunks=[chunk("a\n")], place="1", complete=False),
        "1": wire.Logs(chunks=[chunk("b\n", stream="stderr")], place="2", complete=True),
        "2": wire.Logs(chunks=[], place="2", complete=True),
    }

    def page(asked: Asked) -> Reply:
        return Reply(pages[asked.query.get("place", [""])[0]])

    server.on("GET", ONE, Reply(execution()))
    server.on("GET", ONE + "/logs", page)
    result = invoke("executions", "logs", str(EXECUTION_ID))
    assert (result.stdout, result.stderr) == ("a\n", "b\n")
    lines = invoke("executions", "logs", str(EXECUTION_ID), "-o", "jsonl").stdout.splitlines()
    assert [msgspec.json.decode(line)["stream"] for line in lines] == ["stdout", "stderr"]


def test_logs_follows(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", ONE + "/logs", events(event("chunk", chunk("live\n"), "1"), event("end", {})))
    assert invoke("executions", "logs", "--follow", str(EXECUTION_ID)).stdout == "live\n"
    assert '"live\\n"' in invoke("executions", "logs", "-f", str(EXECUTION_ID), "-o", "jsonl").stdout


def test_cancel(server: Scripted, invoke: Invoke) -> None:
    server.on("POST", ONE + "/cancel", Reply(running(cancelling=True)))
    result = invoke("executions", "cancel", str(EXECUTION_ID), "--reason", "wrong data")
    assert result.stdout == f"{EXECUTION_ID}  hello  ▶ running, being cancelled\n"
    assert server.last().json() == {"reason": "wrong data"}


def test_events_are_lines_of_the_feed(server: Scripted, invoke: Invoke) -> None:
    newer = execution(execution_id=UUID(int=EXECUTION_ID.int + 1), job="second")
    server.on("GET", "/api/v1/executions", Reply(wire.Page(items=[newer, execution()])))
    assert [line.split()[2] for line in invoke("events").stdout.splitlines()] == ["hello", "second"]
    lines = invoke("events", "-o", "json").stdout.splitlines()
    assert [msgspec.json.decode(line)["job"] for line in lines] == ["hello", "second"]


def test_events_follow_until_refused(server: Scripted, invoke: Invoke) -> None:
    stream = [
        events(event("execution", execution(), "1")),
        problem(401, "unauthenticated", "the token has expired"),
    ]
    server.on("GET", "/api/v1/stream", stream)
    result = invoke("events", "--follow")
    assert result.exit_code == 4
    assert "✔ hello" in result.stdout


def test_workers(server: Scripted, invoke: Invoke) -> None:
    worker = wire.Worker(
        worker_id=JOB_ID,
        name="local",
        session_id=JOB_ID,
        state="idle",
        host="here",
        version="0.1.0",
        slots=8,
        busy=3,
        queues=["short", "long"],
        kinds=["shell"],
        labels={"zone": "eu"},
        started_at=T0,
        seen_at=T0,
    )
    server.on("GET", "/api/v1/workers", Reply(wire.Page(items=[worker])))
    row = invoke("workers", "list").stdout.splitlines()[1].split()
    assert row[:5] == ["local", "idle", "3/8", "short,long", "here"]
    assert "zone=eu" in invoke("workers", "list", "-o", "wide").stdout


def test_shards(server: Scripted, invoke: Invoke) -> None:
    process = wire.SchedulerProcess(
        scheduler_id=JOB_ID,
        name="here-1",
        state="active",
        host="here",
        version="0.1.0",
        shards=1,
        started_at=T0,
        seen_at=T0,
    )
    shard = wire.Shard(shard=7, owner="here-1", epoch=3, lease_expires_at=T0, watermark=T0, lag_s=1.5)
    free = wire.Shard(shard=8, owner=None, epoch=2, lease_expires_at=None, watermark=T0, lag_s=70)
    server.on("GET", "/api/v1/system/shards", Reply(wire.Shards(schedulers=[process], shards=[shard, free])))
    lines = [line.split() for line in invoke("shards").stdout.splitlines()]
    assert lines[1][:4] == ["here-1", "active", "1", "here"]
    assert lines[4][:3] == ["7", "here-1", "3"] and lines[4][-2:] == ["1.5", "s"]
    assert lines[5][:4] == ["8", "none", "2", "–"]
    assert '"owner":"here-1"' in invoke("shards", "-o", "json").stdout.replace(" ", "")


def test_the_doctor_names_each_check_and_offender(server: Scripted, invoke: Invoke) -> None:
    well = wire.Diagnosis(healthy=True, checks={"never early": "ok"}, findings=[])
    server.on("GET", "/api/v1/doctor", Reply(well))
    result = invoke("doctor")
    assert (result.exit_code, result.stdout) == (0, "✔ never early\nhealthy\n")
    finding = wire.Finding(check="one owner", offender="shard 3", what="has none")
    ill = wire.Diagnosis(healthy=False, checks={"never early": "ok", "one owner": "1 offenders"}, findings=[finding])
    server.on("GET", "/api/v1/doctor", Reply(ill))
    result = invoke("doctor")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "✔ never early",
        "✖ one owner: 1 offenders",
        "    shard 3: has none",
        "not healthy",
    ]
    assert invoke("doctor", "-o", "json").exit_code == 1
    assert server.last("GET").query == {}
    invoke("doctor", "--all")
    assert server.last("GET").query == {"all": ["true"]}


def test_ui_prints_the_whole_link(server: Scripted, invoke: Invoke) -> None:
    server.on("POST", "/api/v1/login-links", Reply(wire.LoginLink(path="/login?k=abc", expires_at=T0), 201))
    assert invoke("ui").stdout == f"{server.url}/login?k=abc\n"


def test_list_takes_a_filter_as_words(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", "/api/v1/executions", Reply(wire.Page(items=[execution()])))
    invoke("executions", "list", "since:24h", "night", "--state", "failed", "--state", "lost", "--job", "a")
    assert server.last("GET").query["filter"] == ["since:24h night job:a state:failed,lost"]
    assert "state" not in server.last("GET").query


def test_logs_start_each_line_with_the_time_when_it_was_received(
    server: Scripted, invoke: Invoke, local_zone: str
) -> None:
    at = datetime(2026, 11, 18, 3, 0, 1, 250_000, tzinfo=UTC)
    later = at + timedelta(seconds=2)
    chunks = [
        chunk("one\ntw", received_at=at),
        chunk("o\n\nthree", seq=2, received_at=later),
        chunk("bad\n", seq=3, stream="stderr", received_at=later),
        chunk("old", seq=4, attempt=2),
    ]
    server.on("GET", ONE, Reply(execution()))
    server.on("GET", ONE + "/logs", Reply(wire.Logs(chunks=chunks, place="", complete=True)))
    result = invoke("executions", "logs", "--timestamps", str(EXECUTION_ID))
    first, second = "2026-11-18 12:00:01.250  ", "2026-11-18 12:00:03.250  "
    # A line has the time of its beginning; a chunk of an earlier version has none.
    assert result.stdout.startswith(f"{first}one\n{first}two\n{second}\n{second}three")
    assert result.stdout.endswith("–  old")
    assert result.stderr.startswith(f"{second}bad\n")
    refused = invoke("executions", "logs", "--timestamps", "--raw", str(EXECUTION_ID))
    assert refused.exit_code == 2 and "--timestamps" in refused.stderr
