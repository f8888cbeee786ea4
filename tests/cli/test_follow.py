"""`run --follow` during backoff and at the end, with a real server and worker; the progress bar."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mainspring import wire
from mainspring.cli.progress import BAR_WIDTH, bar
from mainspring.cli.run import retry_line
from tests.support.invoke import Invoke
from tests.support.scripted_server import (
    EXECUTION_ID,
    T0,
    Reply,
    Scripted,
    event,
    events,
    execution,
    job,
    problem,
    running,
)

ONE = f"/api/v1/executions/{EXECUTION_ID}"
LETTER = f"/api/v1/dead-letters/{EXECUTION_ID}"


def retry(**changes: object) -> wire.Retry:
    values = {"attempt": 1, "outcome": "failed", "exit_code": 3, "error": "exit code 3", "due_at": T0}
    return wire.Retry(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "most", "line"),
    [
        (retry(), 3, "attempt 1 failed: exit code 3; retry 1 of 3 in 12 s"),
        (retry(error=None), 3, "attempt 1 failed: exit code 3; retry 1 of 3 in 12 s"),
        (
            retry(error="ValueError: bad\nmore", exit_code=None),
            None,
            "attempt 1 failed: ValueError: bad; retry 1 in 12 s",
        ),
        (retry(outcome="timed_out", error=None, exit_code=None), 1, "attempt 1 timed out; retry 1 of 1 in 12 s"),
        (retry(attempt=5, error="\x1b[2J"), 3, "attempt 5 failed: \\x1b[2J; retry 5 in 12 s"),
    ],
)
def test_a_retry_is_one_line(given: wire.Retry, most: int | None, line: str) -> None:
    assert retry_line(given, most, T0 - timedelta(seconds=12)) == line


def test_backoff_and_the_cause_are_printed(server: Scripted, invoke: Invoke) -> None:
    failed = execution(state="failed", attempt=2, exit_code=3, error="exit code 3")
    server.on("POST", "/api/v1/jobs/hello/trigger", Reply(running(state="queued", started_at=None), 201))
    server.on("GET", f"{ONE}/logs", events(event("retry", retry()), event("end", {"state": "failed"})))
    server.on("GET", ONE, Reply(failed))
    server.on("GET", f"/api/v1/jobs/{failed.job_id}", Reply(job()))
    letter = {
        "dead_letter_id": EXECUTION_ID, "job_id": failed.job_id, "job": "hello", "version": 1, "state": "open",
        "ended_as": "failed", "trigger": "manual", "queue": "short", "fingerprint": "ab", "fire_at": T0,
        "created_at": T0, "exit_code": 3, "reason": None, "error": "exit code 3\ndisk full", "attempts": [],
        "params": None, "new_params": None, "replay_of": None, "claimed_by": None, "claimed_until": None, "note": None,
        "noted_by": None, "replayed_as": None, "replayed_at": None, "replayed_by": None, "replay_after": None,
        "resolved_by": None, "closed_at": None, "closed_by": None, "close_reason": None,
    }  # fmt: skip
    server.on("GET", LETTER, Reply(letter))
    result = invoke("run", "hello", "--follow")
    assert result.exit_code == 10
    assert "attempt 1 failed: exit code 3; retry 1 of 3 in 0 ms\n" in result.stderr
    assert "  exit code 3\n  disk full\n  see it with: mainspring dead-letters get 0193a4c1" in result.stderr


def test_a_token_without_access_to_dead_letters_gets_the_error_of_the_execution(
    server: Scripted, invoke: Invoke
) -> None:
    server.on("POST", "/api/v1/jobs/hello/trigger", Reply(running(), 201))
    server.on("GET", f"{ONE}/logs", events(event("end", {"state": "failed"})))
    server.on("GET", ONE, Reply(execution(state="failed", error="ValueError: bad", exit_code=None)))
    server.on("GET", LETTER, problem(403, "forbidden", "this token lacks the scope 'operate'"))
    result = invoke("run", "hello", "--follow")
    assert result.exit_code == 10
    assert "  ValueError: bad\n" in result.stderr
    assert "dead-letters" not in result.stderr


@pytest.mark.parametrize("percent", [-5, 0, 0.4, 1, 41, 50, 99.9, 100, 250])
def test_the_bar_has_one_width_and_grows(percent: float) -> None:
    text = bar(percent)
    assert len(text) == BAR_WIDTH + 2
    assert text.count("█") == int(min(max(percent, 0), 100) / 100 * BAR_WIDTH + 1 / 16)
    assert bar(41) == "▕█████████▉              ▏"
