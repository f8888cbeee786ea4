"""`backfill`, `backfills` and the pause options against a scripted server."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mainspring import wire
from mainspring.cli.arguments import until
from mainspring.display.times import now
from tests.support.invoke import Invoke
from tests.support.scripted_server import JOB_ID, T0, Reply, Scripted, execution, job, problem

ID = "0193a4c1-2b4d-7a1f-a000-00000000000b"
PATH = f"/api/v1/backfills/{ID}"
ASK = "/api/v1/jobs/hello/backfill"


def backfill(**changes: Any) -> dict[str, Any]:
    return {
        "backfill_id": ID,
        "job_id": str(JOB_ID),
        "job": "hello",
        "state": "running",
        "from": T0 - timedelta(days=1),
        "to": T0,
        "reprocess": "none",
        "order": "oldest",
        "concurrency": 1,
        "priority": 2,
        "params": None,
        "instants": 40,
        "made": 10,
        "left_out": 3,
        "executions": {"succeeded": 9, "running": 1},
        "created_at": T0,
        "created_by": "me",
        "ended_at": None,
        **changes,
    }


def plan(count: int = 40, left_out: int = 3) -> wire.BackfillPlan:
    page = [T0 + timedelta(minutes=n) for n in range(count)]
    first, last = (page[0], page[-1]) if page else (None, None)
    return wire.BackfillPlan(instants=count, left_out=left_out, first=first, last=last, page=page)


def test_a_dry_run_shows_the_instants_and_starts_nothing(server: Scripted, invoke: Invoke) -> None:
    server.on("POST", ASK, Reply(plan()))
    result = invoke("backfill", "hello", "--from", "2026-11-01", "--to", "2026-11-02T00:00Z", "--dry-run")
    assert result.exit_code == 0, result.stderr
    assert "hello: 40 fires from " in result.stdout and "; 3 excluded" in result.stdout
    assert result.stdout.splitlines()[-1].strip() == "and 30 more"
    (asked,) = server.asked
    assert asked.json() == {
        "from": "2026-11-01T00:00:00Z",
        "to": "2026-11-02T00:00:00Z",
        "reprocess": "none",
        "order": "oldest",
        "concurrency": 1,
        "priority": 2,
        "params": None,
        "dry_run": True,
    }


def test_without_a_terminal_it_needs_yes(server: Scripted, invoke: Invoke) -> None:
    server.on("POST", ASK, Reply(plan()))
    result = invoke("backfill", "hello", "--from", "2026-11-01")
    assert result.exit_code == 2 and "--yes" in result.stderr
    assert [asked.json()["dry_run"] for asked in server.asked] == [True]


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        ({"state": "finished", "executions": {"succeeded": 40}}, 0),
        ({"state": "finished", "executions": {"succeeded": 39, "failed": 1}}, 10),
        ({"state": "cancelled", "executions": {"cancelled": 3}}, 11),
    ],
)
def test_waiting_tells_how_far_it_is_and_how_it_ended(
    server: Scripted, invoke: Invoke, monkeypatch: pytest.MonkeyPatch, ended: dict[str, Any], code: int
) -> None:
    monkeypatch.setattr("mainspring.cli.backfill.POLL_S", 0)
    server.on("POST", ASK, [Reply(plan()), Reply(backfill(executions={}), 201)])
    server.on("GET", PATH, [Reply(backfill()), Reply(backfill()), Reply(backfill(ended_at=T0, **ended))])
    result = invoke(
        "backfill",
        "hello",
        "--from",
        "2026-11-01",
        "--reprocess",
        "failed",
        "--order",
        "newest",
        "--concurrency",
        "4",
        "-p",
        "region=eu",
        "--yes",
        "--wait",
    )
    assert result.exit_code == code, result.stderr
    sent = server.asked[1].json()
    assert (sent["reprocess"], sent["order"], sent["concurrency"], sent["params"], sent["dry_run"]) == (
        "failed",
        "newest",
        4,
        {"region": "eu"},
        False,
    )
    line = "running · 13 of 40 fires · 3 excluded · 1 running · 9 succeeded"
    assert result.stderr.splitlines().count(line) == 1, "only when it changes"
    assert result.stdout.startswith(f"{ID}  hello  {ended['state']} · ")


def test_looking_after_backfills(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", "/api/v1/backfills", Reply({"items": [backfill()], "next_cursor": None}))
    listed = invoke("backfills", "list", "--job", "hello")
    assert "13 of 40" in listed.stdout and server.last().query == {"job": ["hello"], "limit": ["20"]}
    server.on("GET", PATH, Reply(backfill(params={"a": 1})))
    shown = invoke("backfills", "get", ID).stdout
    assert "running · 13 of 40 fires" in shown and '{"a":1}' in shown
    for verb, state in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
        server.on("POST", f"{PATH}/{verb}", Reply(backfill(state=state)))
        assert invoke("backfills", verb, ID).stdout.startswith(f"hello: {state} · ")
    server.on("POST", f"{PATH}/pause", problem(409, "already_final", "the backfill is finished already"))
    assert invoke("backfills", "pause", ID).exit_code == 5


def test_pausing_until_and_resuming_with_catch_up(server: Scripted, invoke: Invoke) -> None:
    server.on("POST", "/api/v1/jobs/hello/pause", Reply(job(state="paused", paused_at=T0, paused_until=T0)))
    result = invoke("jobs", "pause", "hello", "--until", "2027-03-01T09:00Z", "--reason", "repairs")
    assert "paused until 2026-" in result.stdout
    assert server.last().json() == {"reason": "repairs", "until": "2027-03-01T09:00:00Z"}
    assert timedelta(hours=1, minutes=59) < until("2h") - now() < timedelta(hours=2, seconds=2)
    server.on("POST", "/api/v1/jobs/hello/resume", Reply(job(next_fire_at=None)))
    assert invoke("jobs", "resume", "hello", "--catch-up").exit_code == 0
    assert server.last().json() == {"catch_up": True}


def test_a_job_shows_its_pause_and_its_deadlines(server: Scripted, invoke: Invoke) -> None:
    missed = {"kind": "max_gap", "state": "missed", "at": T0}
    later = {"kind": "finish_by", "state": "ok", "at": T0}
    paused = job(state="paused", paused_at=T0, paused_until=T0 + timedelta(hours=1), deadlines=[missed, later])
    server.on("GET", "/api/v1/jobs/hello", Reply(paused))
    shown = invoke("jobs", "get", "hello").stdout
    assert "since 2026-11-15" in shown and ", until 2026-11-15" in shown
    assert "missed: no success by 2026-11-15" in shown and "ok, next by 2026-11-15" in shown


def test_history_and_ledger_say_how_they_differ(server: Scripted, invoke: Invoke) -> None:
    assert "jobs ledger" in invoke("jobs", "history", "--help").stdout
    assert "jobs history" in invoke("jobs", "ledger", "--help").stdout
    found = [execution(trigger="manual"), execution(trigger="backfill", backfill_id=ID)]
    server.on("GET", "/api/v1/jobs/hello/executions", Reply(wire.Page(items=found)))
    shown = invoke("jobs", "history", "hello").stdout
    assert "TRIGGER" in shown and "manual" in shown and "backfill" in shown


def test_a_nominal_time_is_not_the_due_time(server: Scripted, invoke: Invoke) -> None:
    server.on("POST", "/api/v1/jobs/hello/trigger", Reply(execution(trigger="manual"), 201))
    assert invoke("run", "hello", "--fire-at", "2026-01-01", "--at", "2027-01-01").exit_code == 0
    sent = server.last().json()
    assert (sent["fire_at"], sent["at"]) == ("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z")


def test_deadlines_are_options_of_a_job(server: Scripted, invoke: Invoke) -> None:
    server.on("POST", "/api/v1/jobs", Reply(job(next_fire_at=None), 201))
    result = invoke(
        "add",
        "hello",
        "--every",
        "1h",
        "--pause-after-failures",
        "3",
        "--start-by",
        "5m",
        "--finish-by",
        "30m",
        "--max-gap",
        "1d",
        "--",
        "true",
    )
    assert result.exit_code == 0, result.stderr
    sent = server.last("POST").json()
    assert (sent["pause_after_failures"], sent["start_by"], sent["finish_by"], sent["max_gap"]) == (
        3,
        "5m",
        "30m",
        "1d",
    )
