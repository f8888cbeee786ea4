"""`mainspring executions artifacts` and `mainspring workers show` against a scripted server."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.support.invoke import Invoke
from tests.support.scripted_server import Reply, Scripted

ID = str(UUID(int=7))
AT = "2026-11-15T12:00:00Z"
FILE: dict[str, Any] = {
    "name": "report/a.csv", "bytes": 12345, "sha256": hashlib.sha256(b'"hi"').hexdigest(), "content_type": "text/csv",
    "attempt": 2, "created_at": AT, "expires_at": "2026-12-15T12:00:00Z",
}  # fmt: skip
EXECUTION: dict[str, Any] = {
    "execution_id": ID, "job_id": ID, "job": "report", "version": 1, "state": "succeeded", "trigger": "manual",
    "queue": "short", "priority": 5, "attempt": 2, "fire_at": AT, "due_at": AT, "queued_at": AT, "started_at": AT,
    "finished_at": AT, "duration_ms": 1, "exit_code": 0, "worker": "w", "cancelling": False, "reason": None,
    "error": None, "result": None, "params": None, "created_by": None, "fires": 1,
}  # fmt: skip
WORKER: dict[str, Any] = {
    "worker_id": ID, "name": "local", "session_id": ID, "state": "idle", "host": "here", "version": "0.1", "slots": 8,
    "busy": 1, "queues": ["short"], "kinds": ["shell"], "started_at": AT, "seen_at": AT,
    "labels": {"zone": "eu", "sandbox/rlimits": "yes", "sandbox/memory": "cgroup"}, "resources": {"cpu": 2000},
}  # fmt: skip


def test_files_are_listed(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", f"/api/v1/executions/{ID}/artifacts", Reply({"items": [FILE]}))
    shown = invoke("executions", "artifacts", ID).stdout
    assert "report/a.csv" in shown and "12,345" in shown
    assert invoke("executions", "artifacts", ID, "-o", "name").stdout == "report/a.csv\n"


def test_one_is_fetched_whole_or_not_at_all(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", f"/api/v1/executions/{ID}", Reply(EXECUTION))
    server.on("GET", f"/api/v1/executions/{ID}/artifacts", Reply({"items": [FILE]}))
    server.on("GET", f"/api/v1/executions/{ID}/artifacts/content", Reply("hi"))
    done = invoke("executions", "artifacts", ID, "--get", "report/a.csv")
    assert (done.exit_code, Path("a.csv").read_bytes()) == (0, b'"hi"')
    server.on("GET", f"/api/v1/executions/{ID}/artifacts/content", Reply("hj"))
    torn = invoke("executions", "artifacts", ID, "--get", "report/a.csv", "--to", "other")
    assert torn.exit_code != 0 and "checksum mismatch" in torn.stderr
    assert not Path("other").exists() and not Path("other.part").exists()
    missing = invoke("executions", "artifacts", ID, "--get", "none")
    assert missing.exit_code == 3


def test_a_worker_says_what_it_holds_attempts_to_and_what_not(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", "/api/v1/workers", Reply({"items": [WORKER]}))
    shown = invoke("workers", "show", "local").stdout
    assert "rlimits, memory (cgroup)" in shown and "pids, cpu, disk_rate, bwrap" in shown and "zone=eu" in shown
    assert invoke("workers", "show", "other").exit_code == 3
