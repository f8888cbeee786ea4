"""Every endpoint that changes data writes an audit entry: actor, action, subject and reason."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx2
import pytest

from mainspring import wire
from mainspring.api.app import endpoints
from mainspring.client import AsyncClient
from mainspring.domain.audit import ACTIONS
from tests.conftest import Cluster

pytestmark = pytest.mark.anyio

HARMLESS = {
    ("POST", "/api/v1/executions:batch"),  # the way of programs: each execution bears who submitted it
    ("POST", "/api/v1/login-links"),
    ("POST", "/api/v1/manifests:diff"),
    ("POST", "/api/v1/schedules:preview"),
    ("POST", "/api/v1/channels/{name}/test"),
    ("POST", "/api/v1/triggers/{name}/test"),
}
FAILING: dict[str, Any] = {"task": {"kind": "shell", "argv": ["false"]}, "retries": {"max": 0}}
HIDDEN = "hunter2-correct-horse"
_PART = re.compile(r"\{\w+\}")


def changing() -> set[tuple[str, str]]:
    """What people may do that changes anything."""
    return {(e.method, e.path) for e in endpoints() if e.method != "GET" and e.scope != "worker"} - HARMLESS


class Walk:
    """Asks one endpoint after the other, and compares what the audit tells of each."""

    def __init__(self, cluster: Cluster, http: httpx2.AsyncClient, client: AsyncClient) -> None:
        self.cluster, self.http, self.client = cluster, http, client
        self.done: set[tuple[str, str]] = set()
        self.last = 0

    async def does(
        self,
        action: str,
        method: str,
        path: str,
        *parts: Any,
        body: Any = None,
        reason: str | None = None,
        entries: int = 1,
    ) -> Any:
        """The answer; `entries` of this action, and none of any other, were written."""
        self.done.add((method, f"/api/v1{path}"))
        filled = iter(parts)
        address = f"/api/v1{_PART.sub(lambda _: str(next(filled)), path)}"
        answer = await self.http.request(method, address, json=body)
        assert answer.status_code < 300, answer.text
        fresh = [e for e in (await self.client.audit(limit=50)).items if e.audit_id > self.last]
        assert [(e.action, e.actor, e.reason) for e in fresh] == [(action, "test admin", reason)] * entries
        self.last = max((e.audit_id for e in fresh), default=self.last)
        return answer.json() if answer.content else None

    async def entry(self) -> Any:
        """The newest one."""
        return (await self.client.audit(limit=1)).items[0]


@pytest.fixture
def walk(cluster: Cluster, http: httpx2.AsyncClient, client: AsyncClient) -> Walk:
    return Walk(cluster, http, client)


async def test_everything_that_changes_is_audited(cluster: Cluster, walk: Walk) -> None:
    async with cluster.worker():
        await _jobs(walk)
        await _dead_letters(walk)
    await _workflows(walk)
    await _settings(walk)
    await _secrets(walk)
    await _triggers(walk)
    await _manifests(walk)
    assert walk.done == changing(), "an endpoint that changes something leaves an entry, and is tried here"
    told = {e.action for e in (await walk.client.audit(limit=500)).items}
    # Of pages, see tests/web; of workflows as needed jobs, tests/intake: test_audit.py, test_submissions.py; of
    # secrets that attempts get, tests/api/test_secret_use.py.
    elsewhere = {"execution.requeue", "execution.reject", "secret.use"}
    elsewhere |= {"duration.approve", "duration.revoke"}  # by somebody else: test_duration_requests.py
    elsewhere |= {"browser_session.begin", "login.fail", "request.deny"}  # test_audit_chain.py
    assert told | elsewhere >= {a for a in ACTIONS if not a.startswith("workflow.")}


async def _jobs(walk: Walk) -> None:
    await walk.does("job.create", "POST", "/jobs", body=FAILING | {"name": "a", "schedule": {"every": 3600}})
    await walk.does("job.create", "POST", "/jobs", body=FAILING | {"name": "b"})
    await walk.does("job.edit", "PATCH", "/jobs/{ref}", "a", body={"priority": 7})
    assert (await walk.entry()).details == {
        "fields": ["priority"],
        "changes": {"priority": [5, 7]},
        "version": 2,
    }
    await walk.does("job.rollback", "POST", "/jobs/{ref}/rollback", "a", body={"version": 1})
    assert (await walk.entry()).details["changes"] == {"priority": [7, 5]}
    await walk.does("job.pause", "POST", "/jobs/{ref}/pause", "a", body={"reason": "holiday"}, reason="holiday")
    await walk.does("job.resume", "POST", "/jobs/{ref}/resume", "a", body={})
    await walk.does("job.need", "POST", "/jobs/{ref}/dependencies", "b", body={"job": "a"})
    await walk.does("job.skip", "POST", "/jobs/{ref}/skip", "a", body={"reason": "known"}, reason="known")
    await walk.does("job.force_complete", "POST", "/jobs/{ref}/force-complete", "a", body={"reason": "ok"}, reason="ok")
    await walk.does("job.unneed", "DELETE", "/jobs/{ref}/dependencies/{parent}", "b", "a")
    made = await walk.does(
        "job.trigger", "POST", "/jobs/{ref}/trigger", "a", body={"reason": "to see"}, reason="to see"
    )
    assert (await walk.entry()).details == {"execution_id": made["execution_id"]}
    await walk.does("job.trigger", "POST", "/jobs/{ref}/trigger", "a", body={}, entries=0)
    later = await walk.client.trigger("a", wire.RunNow(at=datetime.now(UTC) + timedelta(days=1)))
    cancelled = "/executions/{ref}/cancel"
    await walk.does("execution.cancel", "POST", cancelled, later.execution_id, body={"reason": "no"}, reason="no")
    requeued = "/executions/{ref}/requeue"
    await walk.does("execution.requeue", "POST", requeued, later.execution_id, body={"reason": "yes"}, reason="yes")
    await walk.does("execution.requeue", "POST", requeued, later.execution_id, body={}, entries=0)
    range_ = {"from": (datetime.now(UTC) - timedelta(days=1)).isoformat(), "to": datetime.now(UTC).isoformat()}
    backfill = await walk.does("backfill.create", "POST", "/jobs/{ref}/backfill", "a", body=range_)
    path = "/backfills/{backfill_id}"
    await walk.does("backfill.pause", "POST", path + "/pause", backfill["backfill_id"])
    await walk.does("backfill.pause", "POST", path + "/pause", backfill["backfill_id"], entries=0)
    await walk.does("backfill.resume", "POST", path + "/resume", backfill["backfill_id"])
    await walk.does("backfill.cancel", "POST", path + "/cancel", backfill["backfill_id"])
    await walk.does("job.delete", "DELETE", "/jobs/{ref}", "b")


async def _dead_letters(walk: Walk) -> None:
    await walk.http.post("/api/v1/jobs", json=FAILING | {"name": "c"})
    for _ in range(6):
        await walk.client.wait((await walk.client.trigger("c")).execution_id)
    walk.last = (await walk.entry()).audit_id
    letters = (await walk.http.get("/api/v1/dead-letters", params={"job": "c"})).json()["items"]
    ids = [letter["dead_letter_id"] for letter in letters]
    one = "/dead-letters/{ref}"
    await walk.does("dead_letter.claim", "POST", one + "/claim", ids[0], body={"for": "10m"})
    await walk.does("dead_letter.edit", "PATCH", one, ids[0], body={"note": "seen"})
    await walk.does("dead_letter.release", "POST", one + "/release", ids[0])
    await walk.does("dead_letter.replay", "POST", one + "/replay", ids[0], body={})
    await walk.does("dead_letter.dismiss", "POST", one + "/dismiss", ids[1], body={"reason": "old"}, reason="old")
    some = "/dead-letters:"
    await walk.does("dead_letter.claim", "POST", some + "claim", body={"job": "c", "limit": 2}, entries=2)
    await walk.does("dead_letter.replay", "POST", some + "replay", body={"ids": ids[2:4]}, entries=2)
    why = {"ids": ids[4:], "reason": "old"}
    await walk.does("dead_letter.dismiss", "POST", some + "dismiss", body=why, reason="old", entries=2)


async def _workflows(walk: Walk) -> None:
    steps: dict[str, Any] = {n: {"approval": {"self_approval": True}} for n in ("yes", "no", "left", "done", "open")}
    steps["sent"] = {"event": {"name": "go"}}
    spec: dict[str, Any] = {"name": "flow", "steps": steps}
    await walk.does("workflow.create", "POST", "/workflows", body=spec)
    spec = {
        "name": "flow",
        "description": "new",
        "steps": steps | {"yes": {"approval": {"message": "?", "self_approval": True}}},
    }
    del spec["steps"]["open"]
    spec["steps"]["more"] = {"approval": {"self_approval": True}}
    await walk.does("workflow.edit", "POST", "/workflows", body=spec)
    assert (await walk.entry()).details == {
        "version": 2,
        "fields": ["steps", "description"],
        "steps": {"added": ["more"], "removed": ["open"], "changed": ["yes"]},
    }
    await walk.does("workflow.edit", "POST", "/workflows", body=spec, entries=0)
    run = await walk.does("run.start", "POST", "/workflows/{ref}/run", "flow", body={"reason": "now"}, reason="now")
    await walk.does("run.start", "POST", "/workflows/{ref}/run", "flow", body={}, entries=0)
    run_id, step = run["run_id"], "/runs/{run_id}/steps/{step}"
    await walk.does("step.approve", "POST", step + "/approve", run_id, "yes", body={"note": "fine"}, reason="fine")
    await walk.does("step.reject", "POST", step + "/reject", run_id, "no", body={"note": "bad"}, reason="bad")
    await walk.does("step.skip", "POST", step + "/skip", run_id, "left", body={"reason": "x"}, reason="x")
    await walk.does(
        "step.force_complete", "POST", step + "/force-complete", run_id, "done", body={"reason": "y"}, reason="y"
    )
    await walk.does("run.event", "POST", "/runs/{run_id}/events/{name}", run_id, "go", body={})
    await walk.does("run.cancel", "POST", "/runs/{run_id}/cancel", run_id, body={"reason": "stop"}, reason="stop")
    await walk.does("run.rerun", "POST", "/runs/{run_id}/rerun", run_id, body={})
    await walk.does("workflow.rollback", "POST", "/workflows/{ref}/rollback", "flow", body={"version": 1})
    assert (await walk.entry()).details == {
        "version": 3,
        "to": 1,
        "fields": ["steps", "description"],
        "steps": {"added": ["open"], "removed": ["more"], "changed": ["yes"]},
    }
    await walk.does("workflow.pause", "POST", "/jobs/{ref}/pause", "flow", body={})
    await walk.does("workflow.resume", "POST", "/jobs/{ref}/resume", "flow", body={})
    await walk.does("workflow.delete", "DELETE", "/workflows/{ref}", "flow")


async def _manifests(walk: Walk) -> None:
    """An apply records itself, and each object that it writes."""
    body = {
        "manifests": [{"kind": "Job", "metadata": {"name": "applied"}, "spec": {"shell": ["true"]}}],
        "owner": "ops",
    }
    answer = await walk.http.post("/api/v1/manifests:apply", json=body)
    assert answer.status_code == 200, answer.text
    walk.done.add(("POST", "/api/v1/manifests:apply"))
    fresh = [e for e in (await walk.client.audit(limit=50)).items if e.audit_id > walk.last]
    assert [(e.action, e.name) for e in fresh] == [("manifest.apply", "ops"), ("job.create", "applied")]
    assert fresh[0].details == {"created": 1, "changed": 0, "deleted": 0}


async def _identity(walk: Walk) -> None:
    made = await walk.does("token.create", "POST", "/tokens", body={"name": "ci", "role": "submitter"})
    assert (await walk.entry()).details == {"scopes": [], "role": "submitter", "expires_at": None}
    rotated = await walk.does("token.rotate", "POST", "/tokens/{ref}/rotate", made["token_id"], body={})
    await walk.does("token.revoke", "DELETE", "/tokens/{ref}", rotated["token_id"])
    await walk.does("role.write", "PUT", "/roles/{name}", "night", body={"scopes": ["read"]})
    assert (await walk.entry()).details == {"scopes": ["read"], "before": None}
    await walk.does("user.create", "POST", "/users", body={"name": "alice", "role": "night"})
    await walk.does("user.edit", "PATCH", "/users/{name}", "alice", body={"role": "viewer"})
    assert (await walk.entry()).details == {"changes": {"role": ["night", "viewer"]}}
    await walk.does("user.delete", "DELETE", "/users/{name}", "alice")
    async with walk.cluster.database.connection() as connection:
        await connection.execute(
            "INSERT INTO principals"
            " (principal_id, tenant_id, kind, name, display_name, role, issuer, subject, created_by)"
            " VALUES (gen_random_uuid(), 1, 'user', 'bob-1', 'Bob', 'viewer', 'https://id.example.com', 'bob', 'test')"
        )
    await walk.does("user.block", "POST", "/users/{name}/block", "bob-1")
    await walk.does("user.unblock", "POST", "/users/{name}/unblock", "bob-1")
    await walk.does("role.delete", "DELETE", "/roles/{name}", "night")


async def _tenants(walk: Walk) -> None:
    await walk.does("tenant.create", "POST", "/tenants", body={"name": "acme", "max_jobs": 3})
    assert (await walk.entry()).details == {"max_jobs": 3}
    await walk.does("tenant.edit", "PATCH", "/tenants/{name}", "acme", body={"max_jobs": None})
    assert (await walk.entry()).details == {"changes": {"max_jobs": [3, None]}}
    token = "/tenants/{name}/tokens"
    await walk.does("token.create", "POST", token, "acme", body={"name": "t", "role": "admin"}, entries=0)
    await walk.does("tenant.suspend", "POST", "/tenants/{name}/suspend", "acme", body={"reason": "r"}, reason="r")
    await walk.does("tenant.resume", "POST", "/tenants/{name}/resume", "acme")
    await walk.does("tenant.suspend", "POST", "/tenants/{name}/suspend", "acme", body={"reason": "r"}, reason="r")
    await walk.does("tenant.delete", "DELETE", "/tenants/{name}", "acme")
    async with walk.cluster.database.connection() as connection:
        own = await connection.fetch(
            "SELECT action, actor, reason FROM audit JOIN tenants USING (tenant_id)"
            " WHERE tenants.name LIKE 'acme [deleted%' AND action LIKE 'tenant.%' ORDER BY audit_id"
        )
    expected = ["create", "edit", "suspend", "resume", "suspend", "delete"]
    assert [row["action"] for row in own] == [f"tenant.{action}" for action in expected]
    assert {row["actor"] for row in own} == {"test admin"} and own[2]["reason"] == "r"


async def _secrets(walk: Walk) -> None:
    one, body = "/secrets/{name}", {"value": HIDDEN, "jobs": ["a"]}
    await walk.does("secret.create", "PUT", one, "db", body=body)
    await walk.does("secret.edit", "PUT", one, "db", body={"jobs": ["a", "c"]})
    assert (await walk.entry()).details == {"version": 1, "changes": {"jobs": [["a"], ["a", "c"]]}}
    await walk.does("secret.rotate", "POST", one + "/rotate", "db", body={"value": HIDDEN + "-2"})
    assert (await walk.entry()).details == {"version": 2}
    await walk.does("secret.rotate_key", "POST", "/secret-keys/rotate")
    await walk.does("secret.encrypt", "POST", "/secret-keys/encrypt")
    await walk.does("secret.delete", "DELETE", one, "db")


async def _triggers(walk: Walk) -> None:
    one, spec = "/triggers/{name}", {"source": {"kind": "webhook", "scheme": "github"}, "job": "a"}
    await walk.does("trigger.create", "POST", "/triggers", body={"name": "push", "secret": HIDDEN, **spec})
    assert (await walk.entry()).details == {"kind": "webhook", "job": "a"}
    await walk.does("trigger.edit", "PUT", one, "push", body=spec | {"job": "c"})
    assert (await walk.entry()).details == {"fields": ["job"]}
    await walk.does("trigger.pause", "POST", one + "/pause", "push", body={"reason": "noisy"}, reason="noisy")
    await walk.does("trigger.resume", "POST", one + "/resume", "push")
    await walk.does("trigger.resume", "POST", one + "/resume", "push", entries=0)
    await walk.does("trigger.rotate", "POST", one + "/rotate", "push", body={"secret": HIDDEN + "-2"})
    await walk.does("trigger.delete", "DELETE", one, "push")


async def _durations(walk: Walk) -> None:
    await walk.does("queue.change", "PATCH", "/queues/{name}", "quick", body={"max_duration_s": 60})
    path, body = "/duration-requests", {"job": "a", "queue": "quick", "timeout": "2h", "reason": "r"}
    made = await walk.does("duration.request", "POST", path, body=body, reason="r")
    assert (await walk.entry()).details == {"queue": "quick", "timeout": "2h"}
    await walk.does("duration.withdraw", "POST", path + "/{ref}/withdraw", made["request_id"])
    made = await walk.does("duration.request", "POST", path, body=body, reason="r")
    no = {"approved": False, "note": "n"}
    await walk.does("duration.refuse", "POST", path + "/{ref}/decide", made["request_id"], body=no, reason="n")


async def _settings(walk: Walk) -> None:
    await walk.does("calendar.write", "PUT", "/calendars/{name}", "days", body={"dates": ["2030-01-01"]})
    await walk.does("calendar.write", "PUT", "/calendars/{name}", "days", body={"dates": ["2030-01-01"]}, entries=0)
    await walk.does("calendar.delete", "DELETE", "/calendars/{name}", "days")
    window = {"start_at": "2099-01-01T00:00:00Z", "end_at": "2099-01-01T01:00:00Z", "reason": "move"}
    made = await walk.does("blackout.create", "POST", "/blackouts", body=window, reason="move")
    await walk.does("blackout.delete", "DELETE", "/blackouts/{blackout_id}", made["blackout_id"], reason="move")
    await walk.does("queue.change", "PATCH", "/queues/{name}", "short", body={"cap": 3})
    assert (await walk.entry()).details == {"changes": {"cap": [None, 3]}}
    await walk.does("queue.change", "PATCH", "/queues", body={"min_isolation": "process"})
    assert (await walk.entry()).details == {"changes": {"min_isolation": ["none", "process"]}}
    await _durations(walk)
    async with walk.cluster.worker(name="drained", queues=("nothing",)):
        await walk.does("worker.drain", "POST", "/workers/{name}/drain", "drained", body={"reason": "r"}, reason="r")
        await walk.does("worker.drain", "POST", "/workers/{name}/drain", "drained", body={}, entries=0)
        await walk.does("worker.resume", "POST", "/workers/{name}/resume", "drained", body={})
    grants = {"queues": ["short"], "labels": ["zone=eu"]}
    await walk.does("token.create", "POST", "/worker-tokens", body={"name": "fleet", **grants})
    assert (await walk.entry()).details == {"scopes": ["worker"], "expires_at": None, "kinds": ["*"], **grants}
    await _identity(walk)
    await _tenants(walk)
    kept = {"name": "kept", "slots": 1, "anyway": True, **window}
    soon = datetime.now(UTC) + timedelta(hours=1)
    kept |= {"start_at": soon.isoformat(), "end_at": (soon + timedelta(hours=1)).isoformat()}
    await walk.does("reservation.create", "POST", "/reservations", body=kept, reason="move")
    await walk.does("reservation.delete", "DELETE", "/reservations/{name}", "kept")
    target = {"kind": "webhook", "url": "http://127.0.0.1:9/", "secret": "whsec_" + "c2VjcmV0" * 8}
    channel = {"target": target, "events": ["execution.failed"]}
    await walk.does("channel.create", "POST", "/channels", body={"name": "hook", **channel})
    changed = {"target": target | {"url": "http://127.0.0.1:8/", "secret": "whsec_" + "b3RoZXJz" * 8}, "events": []}
    await walk.does("channel.edit", "PUT", "/channels/{name}", "hook", body=changed)
    assert (await walk.entry()).details == {"fields": ["events", "target", "secrets"]}
    await walk.does("channel.enable", "POST", "/channels/{name}/enable", "hook")
    await walk.does("channel.delete", "DELETE", "/channels/{name}", "hook")
    rule = {"condition": "dead_letters", "threshold": 7}
    await walk.does("rule.write", "PUT", "/alert-rules/{name}", "mine", body=rule)
    await walk.does("rule.delete", "DELETE", "/alert-rules/{name}", "mine")
    auth = walk.cluster.context.auth
    for token in (walk.cluster.token, walk.cluster.token):
        await auth.cookie_for_token(token)
    session = (await walk.client.browser_sessions()).items[0]
    await walk.does("browser_session.end", "DELETE", "/browser-sessions/{ref}", session.session_id)
    await walk.does("browser_session.end_all", "DELETE", "/browser-sessions")
    silence = {"matchers": {"rule": "*"}, "end_at": "2099-01-01T00:00:00Z", "reason": "quiet"}
    made = await walk.does("silence.create", "POST", "/silences", body=silence, reason="quiet")
    await walk.does("silence.delete", "DELETE", "/silences/{silence_id}", made["silence_id"], reason="quiet")


async def test_no_secret_is_ever_written(cluster: Cluster, client: AsyncClient) -> None:
    async with cluster.database.connection() as connection:
        for secret in ("whsec_", HIDDEN):
            assert not await connection.fetchval("SELECT count(*) FROM audit a WHERE strpos(a::text, $1) > 0", secret)


async def test_any_execution_has_a_timeline_and_what_has_ended_stays_as_it_is(cluster: Cluster, walk: Walk) -> None:
    spec = FAILING | {"name": "lives", "retries": {"max": 1, "base": "100ms", "jitter": "none"}}
    await walk.http.post("/api/v1/jobs", json=spec)
    execution = await walk.client.trigger("lives", wire.RunNow(reason="to see"))

    async def told() -> list[tuple[str, str]]:
        found = (await walk.http.get(f"/api/v1/executions/{execution.execution_id}/events")).json()["items"]
        return [(event["event"].removeprefix("execution."), event["at"]) for event in found]

    async with cluster.worker():
        await walk.client.wait(execution.execution_id)
    after = await told()
    assert [at for _, at in after] == sorted(at for _, at in after)
    assert [name for name, _ in after] == [
        "created",
        "due",
        "queued",
        "started",
        "retrying",
        "due",
        "queued",
        "started",
        "failed",
    ]
    late = await walk.http.post(f"/api/v1/executions/{execution.execution_id}/cancel", json={})
    assert late.status_code == 409 and await told() == after
    async with cluster.database.connection() as connection:
        for statement in ("UPDATE audit SET reason = ''", "DELETE FROM audit"):
            with pytest.raises(asyncpg.RaiseError, match="never changed"):
                await connection.execute(statement)


@pytest.mark.requirement(135)
async def test_health_figures_and_the_trail_of_schedules_and_of_what_was_published(
    cluster: Cluster, walk: Walk
) -> None:
    assert (await walk.http.get("/healthz")).json()["status"] == "ok"
    assert "jobs_scheduled_total" in (await walk.http.get("/metrics")).text
    spec = FAILING | {"name": "daily", "schedule": {"cron": "0 3 * * *"}}
    await walk.http.post("/api/v1/jobs", json=spec)
    await walk.http.patch("/api/v1/jobs/daily", json={"schedule": {"cron": "0 4 * * *"}})
    edit, create = (await walk.client.audit(subject="daily")).items
    assert (create.action, edit.action, edit.details) == (
        "job.create",
        "job.edit",
        {"fields": ["schedule"], "version": 2, "changes": {"schedule": [{"cron": "0 3 * * *"}, {"cron": "0 4 * * *"}]}},
    )
    versions = (await walk.http.get("/api/v1/jobs/daily/versions")).json()["items"]
    assert [v["spec"]["schedule"]["cron"] for v in versions] == ["0 4 * * *", "0 3 * * *"]
    at = (datetime.now(UTC) + timedelta(milliseconds=500)).isoformat()
    await walk.http.post("/api/v1/jobs", json=FAILING | {"name": "once", "schedule": {"at": at}})
    (fire,) = (await walk.client.history("once")).items
    async with cluster.worker():
        await walk.client.wait(fire.execution_id)
    (published,) = (await walk.http.get("/api/v1/jobs/once/ledger")).json()["items"]
    assert published["execution_id"] == str(fire.execution_id) and published["state"] == "failed"
