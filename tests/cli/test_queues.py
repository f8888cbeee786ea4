"""`mainspring queues` and `mainspring why` against a scripted server."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.support.invoke import Invoke
from tests.support.scripted_server import Reply, Scripted

HOLDER = str(UUID(int=7))
LONG: dict[str, Any] = {
    "name": "long", "settings": {"cap": 5, "may_help": ["short"]}, "depth": 12345, "exact": False,
    "by_priority": {"5": 12345}, "oldest_s": 61.0, "running": 5, "workers": 2, "slots": 16,
}  # fmt: skip
LIMITS = [
    {
        "kind": "concurrency",
        "key": "report-eu",
        "limit": 1,
        "per_s": None,
        "next_at": None,
        "holders": [{"execution_id": HOLDER, "job": "report", "started_at": "2026-11-15T12:00:00Z"}],
    },
    {"kind": "rate", "key": "mail", "limit": 10, "per_s": 60.0, "next_at": None, "holders": []},
]


def test_the_list_shows_what_waits_and_who_holds_limits(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", "/api/v1/queues", Reply({"items": [LONG], "limits": LIMITS}))
    shown = invoke("queues", "list").stdout
    for words in (
        "long",
        "~12,345",
        "5/5",
        f"concurrency report-eu: 1 of 1, held by report {HOLDER}",
        "mail: 10 per 60 s",
    ):
        assert words in shown


def test_set_sends_only_what_was_said(server: Scripted, invoke: Invoke) -> None:
    server.on("PATCH", "/api/v1/queues/long", Reply(LONG))
    invoke("queues", "set", "long", "--cap", "0", "--patience", "1m", "--may-help", "short,other", "--pause")
    assert server.last("PATCH").json() == {
        "cap": None,
        "patience_s": 60.0,
        "may_help": ["short", "other"],
        "paused": True,
    }
    invoke("queues", "set", "long", "--max-duration", "4h")
    assert server.last("PATCH").json() == {"max_duration_s": 14_400.0}
    invoke("queues", "set", "long", "--max-duration", "")
    assert server.last("PATCH").json() == {"max_duration_s": None}
    invoke("queues", "set", "long", "--min-isolation", "bwrap")
    assert server.last("PATCH").json() == {"min_isolation": "bwrap"}
    nothing = invoke("queues", "set", "long")
    assert nothing.exit_code == 2 and "Nothing to change" in nothing.stderr


def test_isolate_sets_the_minimum_of_all_queues(server: Scripted, invoke: Invoke) -> None:
    server.on("PATCH", "/api/v1/queues", Reply({"items": [LONG], "limits": [], "min_isolation": "process"}))
    assert "long" in invoke("queues", "isolate", "process").stdout
    assert server.last("PATCH").json() == {"min_isolation": "process"}
    assert invoke("queues", "isolate", "strong").exit_code == 2


def test_why_names_reasons_and_holders(server: Scripted, invoke: Invoke) -> None:
    answer = {
        "execution_id": HOLDER,
        "job": "report",
        "state": "queued",
        "reasons": [
            {"code": "limit", "message": "the concurrency key 'x' is full", "holders": [HOLDER]},
            {"code": "rate", "message": "the rate of 'x' is 1 per 60 s", "until": "2026-11-15T12:00:00Z"},
        ],
    }
    server.on("GET", f"/api/v1/executions/{HOLDER}/why", Reply(answer))
    shown = invoke("why", HOLDER).stdout
    assert f"is full; held by {HOLDER}" in shown and "per 60 s, until" in shown
    server.on("GET", "/api/v1/jobs/report/why", Reply({**answer, "execution_id": None, "state": None}))
    assert "report\n" in invoke("jobs", "why", "report").stdout
