"""`mainspring dead-letters` against a scripted server."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.support.invoke import Invoke
from tests.support.scripted_server import Reply, Scripted

ID, OTHER = str(UUID(int=7)), str(UUID(int=8))
PATH = "/api/v1/dead-letters"
AT = "2026-11-15T12:00:00Z"
LETTER: dict[str, Any] = {
    "dead_letter_id": ID, "job_id": OTHER, "job": "report", "version": 2, "state": "open", "ended_as": "failed",
    "trigger": "fire", "queue": "short", "fingerprint": "abc", "fire_at": AT, "created_at": AT, "exit_code": 3,
    "reason": None, "error": "exit code 3\nmore", "params": {"n": 1}, "new_params": None, "replay_of": None,
    "claimed_by": "ann", "claimed_until": AT, "note": None, "noted_by": None, "replayed_as": None, "replayed_at": None,
    "replayed_by": None, "replay_after": None, "resolved_by": None, "closed_at": None, "closed_by": None,
    "close_reason": None,
    "attempts": [{"attempt": 1, "outcome": "timed_out", "exit_code": 9, "error": "slow\nvery", "started_at": AT,
                  "ended_at": AT, "worker": "alpha"}],
}  # fmt: skip
GROUP = {
    "job_id": OTHER, "job": "report", "fingerprint": "abc", "count": 10000, "exact": False, "first_at": AT,
    "last_at": AT, "sample_id": ID, "ended_as": "failed", "error": "exit code 3", "reason": None,
}  # fmt: skip
REPLAY = {
    "dry_run": False, "replayed": 1, "held": 2, "refused": 1, "canary": None,
    "items": [{"dead_letter_id": ID, "execution_id": OTHER, "due_at": AT},
              {"dead_letter_id": OTHER, "problem": "its job has been deleted"}],
}  # fmt: skip


def test_the_list_shows_what_is_open(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", PATH, Reply({"items": [LETTER]}))
    shown = invoke("dead-letters", "list", "--job", "report").stdout
    assert "report" in shown and "exit code 3" in shown and "more" not in shown
    assert server.last("GET").query == {"job": ["report"], "state": ["open"], "limit": ["20"]}
    invoke("dead-letters", "list", "--all")
    assert "state" not in server.last("GET").query
    server.on("GET", f"{PATH}:groups", Reply({"items": [GROUP]}))
    assert "10,000+" in invoke("dead-letters", "list", "--group").stdout


def test_one_is_shown_with_its_attempts(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", f"{PATH}/{ID}", Reply(LETTER))
    shown = invoke("dead-letters", "get", ID).stdout
    for words in ("report, version 2", "ann until", "timed out", "exit 9", "on alpha", "slow", "  more", '{"n":1}'):
        assert words in shown
    assert "very" not in shown, "of an attempt only the first line"


def test_claim_one_or_the_oldest(server: Scripted, invoke: Invoke) -> None:
    server.on("POST", f"{PATH}/{ID}/claim", Reply(LETTER))
    assert "claimed until" in invoke("dead-letters", "claim", ID, "--for", "1h").stdout
    assert server.last("POST").json() == {"for": "1h"}
    server.on("POST", f"{PATH}:claim", Reply({"items": [LETTER]}))
    assert "report" in invoke("dead-letters", "claim", "--limit", "3").stdout
    assert server.last("POST").json()["limit"] == 3
    server.on("POST", f"{PATH}/{ID}/release", Reply(LETTER))
    assert invoke("dead-letters", "claim", ID, "--release").exit_code == 0
    assert invoke("dead-letters", "claim", "--release").exit_code == 2


def test_note_and_edit(server: Scripted, invoke: Invoke) -> None:
    server.on("PATCH", f"{PATH}/{ID}", Reply(LETTER))
    invoke("dead-letters", "note", ID, "ask the bank")
    assert server.last("PATCH").json()["note"] == "ask the bank"
    invoke("dead-letters", "edit", ID, "-p", "n=5")
    assert server.last("PATCH").json()["params"] == {"n": 5}
    assert invoke("dead-letters", "edit", ID).exit_code == 2


def test_replay_one_needs_no_question(server: Scripted, invoke: Invoke) -> None:
    server.on("POST", f"{PATH}/{ID}/replay", Reply(REPLAY))
    shown = invoke("dead-letters", "replay", ID, "-p", "n=5")
    assert (
        f"{ID[:18]}  replayed as {OTHER}" in shown.stdout
        and "1 replayed, 2 held until the first succeeds, 1 not replayable" in shown.stdout
    )
    assert server.last("POST").json() == {"params": {"n": 5}, "dry_run": False}


def test_replay_many_shows_the_plan_first_and_needs_a_yes(server: Scripted, invoke: Invoke) -> None:
    server.on("POST", f"{PATH}:replay", Reply(REPLAY | {"dry_run": True}))
    refused = invoke("dead-letters", "replay", "--job", "report", "--rate", "10/1m", "--canary")
    assert (
        refused.exit_code == 2
        and "1 would be replayed, 2 would be held" in refused.stderr
        and "--yes" in refused.stderr
    )
    assert [call.json()["dry_run"] for call in server.asked] == [True], "nothing but the plan was asked for"
    done = invoke("dead-letters", "replay", "--job", "report", "--rate", "10/1m", "--canary", "--yes")
    assert done.exit_code == 0
    sent = server.last("POST").json()
    assert (sent["job"], sent["rate"], sent["canary"], sent["dry_run"]) == ("report", "10/1m", True, False)


@pytest.mark.parametrize("yes", [True, False])
def test_dismiss(server: Scripted, invoke: Invoke, yes: bool) -> None:
    assert invoke("dead-letters", "dismiss", ID).exit_code == 2, "a reason is needed"
    server.on("POST", f"{PATH}/{ID}/dismiss", Reply(LETTER | {"state": "dismissed"}))
    assert "dismissed" in invoke("dead-letters", "dismiss", ID, "--reason", "known").stdout
    server.on("POST", f"{PATH}:dismiss", Reply({"dismissed": 4, "dry_run": True}))
    done = invoke("dead-letters", "dismiss", "--job", "report", "--reason", "known", *(["--yes"] if yes else []))
    assert done.exit_code == (0 if yes else 2)
    assert server.last("POST").json()["dry_run"] is not yes
