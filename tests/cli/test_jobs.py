"""`add` and `jobs` against a scripted server."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from mainspring import wire
from mainspring.domain.execution import State
from mainspring.domain.job import JobSpec
from tests.support.invoke import Invoke
from tests.support.scripted_server import JOB_ID, T0, Asked, Reply, Scripted, execution, fires, job, problem

HELLO = "/api/v1/jobs/hello"
ON_DEMAND: dict[str, Any] = {"name": "hello", "task": {"kind": "shell", "argv": ["echo", "hi"]}}


@pytest.fixture(autouse=True)
def _fires(server: Scripted) -> None:
    server.on("GET", HELLO + "/fires", Reply(fires()))


def test_add_sends_only_what_was_said_and_prints_the_next_fires(server: Scripted, invoke: Invoke) -> None:
    server.on("POST", "/api/v1/jobs", Reply(job(), 201))
    result = invoke("add", "hello", "--every", "5s", "--", "echo", "hi", "--flag")
    assert result.exit_code == 0, result.stderr
    assert server.last("POST").json() == {
        "name": "hello",
        "schedule": {"every": "5s"},
        "task": {"kind": "shell", "argv": ["echo", "hi", "--flag"]},
    }
    assert server.last().query == {"count": ["3"]}
    first, *nexts = result.stdout.splitlines()
    assert first == "hello added: every 5 seconds"
    assert [line.split("  ")[-1] for line in nexts] == [
        "2026-11-15 12:00:05 UTC",
        "2026-11-15 12:00:10 UTC",
        "2026-11-15 12:00:15 UTC",
    ]


def test_add_shows_local_time_first(server: Scripted, invoke: Invoke, local_zone: str) -> None:
    server.on("POST", "/api/v1/jobs", Reply(job(), 201))
    result = invoke("add", "hello", "--every", "5s", "--", "true")
    assert f"next  2026-11-15 21:00:05 {local_zone}  2026-11-15 12:00:05 UTC" in result.stdout


def test_add_with_everything(server: Scripted, invoke: Invoke) -> None:
    server.on("POST", "/api/v1/jobs", Reply(job(), 201))
    result = invoke(
        "add",
        "hello",
        "--cron",
        "0 2 * * *",
        "--tz",
        "Europe/Berlin",
        "--queue",
        "long",
        "--priority",
        "7",
        "--retries",
        "5",
        "--timeout",
        "10m",
        "--env",
        "A=1",
        "--env",
        "B=x=y",
        "--cwd",
        "/tmp",
        "--overlap",
        "allow",
        "--misfire",
        "all",
        "--delivery",
        "at_most_once",
        "--description",
        "why",
        "--paused",
        "--",
        "true",
    )
    assert result.exit_code == 0, result.stderr
    sent = server.last("POST").json()
    assert sent == {
        "name": "hello",
        "schedule": {"cron": "0 2 * * *", "timezone": "Europe/Berlin"},
        "queue": "long",
        "priority": 7,
        "retries": {"max": 5},
        "timeout": "10m",
        "overlap": "allow",
        "misfire": {"policy": "all"},
        "delivery": "at_most_once",
        "description": "why",
        "paused": True,
        "task": {"kind": "shell", "argv": ["true"], "env": {"A": "1", "B": "x=y"}, "cwd": "/tmp"},
    }
    msgspec.convert(sent, JobSpec)


def test_add_without_a_schedule_says_how_to_run_it(server: Scripted, invoke: Invoke) -> None:
    server.on("POST", "/api/v1/jobs", Reply(job(ON_DEMAND), 201))
    assert invoke("add", "hello", "--", "echo", "hi").stdout.splitlines() == [
        "hello added: on demand",
        "  run it with: mainspring run hello --follow",
    ]


def test_add_relative_to_now_becomes_an_instant(server: Scripted, invoke: Invoke) -> None:
    server.on("POST", "/api/v1/jobs", Reply(job(), 201))
    assert invoke("add", "hello", "--at", "+10m", "--", "true").exit_code == 0
    assert server.last("POST").json()["schedule"]["at"].endswith("+00:00")
    assert invoke("add", "hello", "--at", "2027-03-01T09:00", "--", "true").exit_code == 0
    assert server.last("POST").json()["schedule"] == {"at": "2027-03-01T09:00"}


@pytest.mark.parametrize(
    "words",
    [
        ["add", "hello", "--every", "5s"],
        ["add", "hello", "--every", "5s", "--cron", "@daily", "--", "true"],
        ["add", "hello", "--tz", "UTC", "--", "true"],
        ["add", "hello", "--env", "A", "--", "true"],
        ["add", "hello", "--priority", "11", "--", "true"],
        ["add", "hello", "--overlap", "maybe", "--", "true"],
        ["jobs", "edit", "hello"],
        ["jobs", "delete"],
    ],
)
def test_wrong_usage_asks_the_server_nothing(server: Scripted, invoke: Invoke, words: list[str]) -> None:
    assert invoke(*words).exit_code == 2
    assert server.asked == []


def test_replace_adds_what_is_missing(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", HELLO, problem(404, "not_found", "no such job"))
    server.on("POST", "/api/v1/jobs", Reply(job(), 201))
    assert "hello added" in invoke("add", "hello", "--replace", "--every", "5s", "--", "echo", "hi").stdout


def test_replace_makes_the_job_like_this_and_nothing_else(server: Scripted, invoke: Invoke) -> None:
    old = {
        **ON_DEMAND,
        "schedule": {"cron": "@daily"},
        "queue": "long",
        "paused": True,
        "metadata": {"team": "a"},
    }
    server.on("GET", HELLO, Reply(job(old)))
    server.on("PATCH", f"/api/v1/jobs/{JOB_ID}", Reply(job()))
    result = invoke("add", "hello", "--replace", "--every", "5s", "--", "echo", "hi")
    assert "hello changed" in result.stdout
    assert server.last("PATCH").json() == {"schedule": {"cron": None, "every": "5s"}, "queue": None}
    server.on("GET", HELLO, Reply(job()))
    assert "hello unchanged" in invoke("add", "hello", "--replace", "--every", "5s", "--", "echo", "hi").stdout


def test_edit_sends_only_the_difference(server: Scripted, invoke: Invoke) -> None:
    old = {
        **ON_DEMAND,
        "schedule": {"every": "5s"},
        "task": {**ON_DEMAND["task"], "env": {"A": "1", "B": "2"}},
    }
    server.on("GET", HELLO, Reply(job(old)))
    server.on("PATCH", HELLO, Reply(job(old)))
    assert "hello changed" in invoke("jobs", "edit", "hello", "--cron", "@daily", "--unset-env", "A").stdout
    assert server.last("PATCH").json() == {
        "schedule": {"every": None, "cron": "@daily"},
        "task": {"env": {"A": None}},
    }
    invoke("jobs", "edit", "hello", "--no-schedule", "--", "date")
    assert server.last("PATCH").json() == {"schedule": None, "task": {"argv": ["date"]}}
    server.asked.clear()
    assert "hello unchanged" in invoke("jobs", "edit", "hello", "--every", "5s").stdout
    assert [asked.method for asked in server.asked if asked.method != "GET"] == []


def test_list_asks_for_as_many_pages_as_it_takes(server: Scripted, invoke: Invoke) -> None:
    def page(asked: Asked) -> Reply:
        size = int(asked.query["limit"][0])
        start = int(asked.query.get("cursor", ["0"])[0])
        names = [f"j{n}" for n in range(start, min(start + size, 700))]
        more = str(start + size) if start + size < 700 else None
        return Reply(wire.Page(items=[job({**ON_DEMAND, "name": name}) for name in names], next_cursor=more))

    server.on("GET", "/api/v1/jobs", page)
    result = invoke("jobs", "list", "--limit", "600", "--prefix", "j", "-o", "name")
    assert result.stdout.split() == [f"j{n}" for n in range(600)]
    assert [(a.query["limit"], a.query["prefix"]) for a in server.asked] == [
        (["500"], ["j"]),
        (["100"], ["j"]),
    ]
    assert "more rows exist" in invoke("jobs", "list").stderr
    assert len(invoke("jobs", "list", "--limit", "9999", "-o", "jsonl").stdout.splitlines()) == 700


def test_list_shows_schedule_next_fire_and_history(server: Scripted, invoke: Invoke) -> None:
    last = [
        wire.LastExecution(
            execution_id=JOB_ID, state=state, fire_at=T0 - timedelta(hours=n), finished_at=T0, duration_ms=1
        )
        for n, state in enumerate[State](("failed", "succeeded"))
    ]
    server.on("GET", "/api/v1/jobs", Reply(wire.Page(items=[job(last=msgspec.to_builtins(last))])))
    header, row = invoke("jobs", "list").stdout.splitlines()
    assert header.split("  ")[0] == "NAME"
    for text in ("hello", "● active", "every 5 seconds", "✔✖"):
        assert text in row
    assert "echo hi" in invoke("jobs", "list", "-o", "wide").stdout
    empty: wire.Page[wire.Job] = wire.Page(items=[])
    server.on("GET", "/api/v1/jobs", Reply(empty))
    assert "mainspring add" in invoke("jobs", "list").stderr


def test_get_shows_details_or_the_json_of_the_api(server: Scripted, invoke: Invoke) -> None:
    found = job(state="paused", pause_reason="until\x1b[1m Monday", next_fire_at=None)
    server.on("GET", HELLO, Reply(found))
    shown = invoke("jobs", "get", "hello").stdout
    assert "⏸ paused: until\\x1b[1m Monday" in shown
    assert "overlap skip, misfire latest, at_least_once" in shown
    assert msgspec.json.decode(invoke("jobs", "get", "hello", "-o", "json").stdout, type=wire.Job) == found


def test_delete_prints_a_plan_and_needs_a_yes(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", HELLO, Reply(job()))
    server.on("DELETE", f"/api/v1/jobs/{JOB_ID}", Reply(status=204))
    refused = invoke("jobs", "delete", "hello")
    assert refused.exit_code == 2
    assert "delete hello: every 5 seconds" in refused.stderr
    assert "--yes" in refused.stderr
    assert [asked.method for asked in server.asked] == ["GET"]
    done = invoke("jobs", "delete", "hello", "--yes")
    assert (done.exit_code, done.stdout) == (0, "hello deleted\n")
    assert server.last().method == "DELETE"


def test_delete_deletes_nothing_if_one_is_unknown(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", HELLO, Reply(job()))
    assert invoke("jobs", "delete", "hello", "unknown", "--yes").exit_code == 3
    assert {asked.method for asked in server.asked} == {"GET"}


def test_pause_and_resume(server: Scripted, invoke: Invoke) -> None:
    server.on("POST", HELLO + "/pause", Reply(job(state="paused", next_fire_at=None)))
    server.on("POST", HELLO + "/resume", Reply(job()))
    assert "mainspring jobs resume hello" in invoke("jobs", "pause", "hello", "--reason", "repairs").stdout
    assert server.last().json() == {"reason": "repairs", "until": None}
    assert "next  2026-11-15" in invoke("jobs", "resume", "hello").stdout


def test_next_and_history(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", HELLO + "/fires", Reply(fires(notes=["02:30 does not exist"])))
    result = invoke("jobs", "next", "hello", "-n", "3", "--after", "2026-11-15T12:00")
    assert server.last().query == {"count": ["3"], "after": ["2026-11-15T12:00:00+00:00"]}
    assert len(result.stdout.splitlines()) == 3
    assert result.stderr == "every 5 seconds\nnote: 02:30 does not exist\n"
    server.on("GET", HELLO + "/executions", Reply(wire.Page(items=[execution()])))
    assert "✔ succeeded" in invoke("jobs", "history", "hello").stdout


def test_list_takes_a_filter_as_words(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", "/api/v1/jobs", Reply(wire.Page(items=[job()])))
    assert invoke("jobs", "list", "state:paused", "night", "-o", "name").exit_code == 0
    assert server.last("GET").query["filter"] == ["state:paused night"]
    assert invoke("jobs", "list", "night", "--prefix", "n").exit_code == 2
