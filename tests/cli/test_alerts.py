"""`mainspring alerts`, `silences` and `channels` against a scripted server."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.support.invoke import Invoke
from tests.support.scripted_server import Reply, Scripted

ALERT: dict[str, Any] = {
    "alert_id": str(UUID(int=1)), "rule": "queue_lag_short", "key": "short", "severity": "warning", "state": "firing",
    "value": 6000.0, "threshold": 5000.0, "summary": "6,000 executions wait in short",
    "since_at": "2026-11-15T12:00:00Z", "fired_at": "2026-11-15T12:00:00Z", "told_at": None, "resolved_at": None,
}  # fmt: skip
RULE: dict[str, Any] = {
    "name": "queue_lag_short",
    "built_in": True,
    "changed": False,
    "means": "executions waiting",
    "rule": {"condition": "queue_depth", "threshold": 5000.0, "only": "short"},
}
SILENCE: dict[str, Any] = {
    "silence_id": str(UUID(int=2)), "matchers": {"rule": "queue_*"}, "start_at": None, "end_at": None,
    "schedule": None, "lasts_s": None, "description": "until noon", "reason": "known", "holds_until": None,
    "created_at": "2026-11-15T12:00:00Z", "created_by": "someone",
}  # fmt: skip
CHANNEL: dict[str, Any] = {
    "name": "ops", "kind": "slack", "target": {}, "secrets": ["url"], "events": ["alert.firing"], "jobs": [],
    "state": "failing", "pending": 3, "created_at": "2026-11-15T12:00:00Z", "created_by": "someone",
    "last_error": "the receiver answered 500",
}  # fmt: skip


def test_what_fires_is_listed(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", "/api/v1/alerts", Reply({"items": [ALERT]}))
    shown = invoke("alerts", "list", "--state", "firing").stdout
    assert "firing" in shown and "6,000 executions wait in short" in shown
    assert server.asked[-1].query["state"] == ["firing"]


def test_a_rule_is_changed_where_it_was_said(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", "/api/v1/alert-rules", Reply({"items": [RULE]}))
    server.on("PUT", "/api/v1/alert-rules/queue_lag_short", Reply(RULE))
    done = invoke("alerts", "set", "queue_lag_short", "--threshold", "20000", "--for", "2m", "--to", "ops")
    assert done.exit_code == 0, done.stderr
    assert server.asked[-1].json() == {
        "condition": "queue_depth",
        "threshold": 20000.0,
        "for": 120.0,
        "severity": "warning",
        "only": "short",
        "channels": ["ops"],
        "enabled": True,
    }
    assert "needs --condition and --threshold" in invoke("alerts", "set", "new", "--for", "2m").stderr


def test_a_silence_takes_matchers(server: Scripted, invoke: Invoke) -> None:
    server.on("POST", "/api/v1/silences", Reply(SILENCE, status=201))
    assert "until noon" in invoke("silences", "add", "rule=queue_*", "--cron", "0 2 * * SUN", "--for", "3h").stdout
    sent = server.asked[-1].json()
    assert (
        sent["matchers"] == {"rule": "queue_*"} and sent["schedule"]["cron"] == "0 2 * * SUN" and sent["lasts"] == "3h"
    )
    assert "is not LABEL=PATTERN" in invoke("silences", "add", "queue", "--until", "+1h").stderr


def test_a_silence_is_ended_by_the_beginning_of_its_id(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", "/api/v1/silences", Reply({"items": [SILENCE]}))
    server.on("DELETE", f"/api/v1/silences/{UUID(int=2)}", Reply(None, status=204))
    assert "deleted" in invoke("silences", "delete", "00000000-0000").stdout
    assert invoke("silences", "delete", "ff").exit_code == 3


def test_a_secret_is_asked_for_and_a_channel_is_tried(server: Scripted, invoke: Invoke) -> None:
    server.on("POST", "/api/v1/channels", Reply({**CHANNEL, "secret": "whsec_x"}, status=201))
    shown = invoke("channels", "add", "ops", "--slack", "-", "--event", "alert.firing", input="https://s/x\n")
    assert server.asked[-1].json()["target"] == {"kind": "slack", "url": "https://s/x"}
    assert "https://s/x" not in shown.stdout and "whsec_x" in shown.stdout
    assert "Use one of" in invoke("channels", "add", "ops").stderr
    tested = {
        "delivered": False,
        "status": 500,
        "excerpt": "no",
        "duration_ms": 7,
        "error": "the receiver answered 500",
    }
    server.on("POST", "/api/v1/channels/ops/test", Reply(tested))
    result = invoke("channels", "test", "ops")
    assert result.exit_code == 1 and "✖ not delivered 500 in 7 ms: the receiver answered 500" in result.stdout


def test_channels_are_listed_with_what_is_wrong(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", "/api/v1/channels", Reply({"items": [CHANNEL]}))
    shown = invoke("channels", "list").stdout
    assert "failing" in shown and "the receiver answered 500" in shown


def test_a_job_is_added_with_whom_it_tells(server: Scripted, invoke: Invoke) -> None:
    server.on("POST", "/api/v1/jobs", Reply({"code": "unknown_channel", "detail": "there is no channel 'opps'"}, 422))
    result = invoke("add", "report", "--notify", "failed,recovered=ops,mail", "--notify", "late=opps", "--", "true")
    assert server.asked[-1].json()["notify"] == [
        {"on": ["failed", "recovered"], "to": ["ops", "mail"]},
        {"on": ["late"], "to": ["opps"]},
    ]
    assert result.exit_code == 6 and "there is no channel 'opps'" in result.stderr
