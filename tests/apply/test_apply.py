"""Applying manifests over HTTP: all or none, three-way, idempotent, and only what the owner owns is pruned."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import Conflict, Forbidden, Invalid, MainspringError, NotFound, TooMany
from mainspring.store.queries import q
from tests.conftest import Cluster
from tests.support.api_tokens import Issue
from tests.support.manifests import actions, applied, compared, counts, every_kind, job, manifest, workflow
from tests.support.statements import listen

pytestmark = pytest.mark.anyio


WRITES = {
    q(name)
    for name in (
        *("applied_marks", "applied_contents", "write_applied", "find_jobs", "job_by_name", "jobs_by_names"),
        *("insert_job", "insert_jobs", "update_job", "update_jobs", "lock_job", "insert_version", "insert_versions"),
        *("bump_shard", "bump_edited_shards", "intern_schedule", "touch_schedules", "find_schedules", "insert_audit"),
        *("cancel_pending_of_job", "cancel_pending_fires", "min_isolation", "queue_settings"),
    )
}


@pytest.fixture
def tag() -> str:
    return uuid4().hex[:8]


def pointers(error: MainspringError) -> list[str]:
    return [problem.pointer for problem in error.problems]


@pytest.mark.requirement(124)
async def test_every_kind_is_created_changed_and_pruned(client: AsyncClient, tag: str) -> None:
    manifests = every_kind(tag)
    assert counts(await compared(client, *manifests, owner=tag)) == (10, 0, 0, 0)
    plan = await applied(client, *manifests, owner=tag)
    assert (plan.applied, counts(plan)) == (True, (10, 0, 0, 0))
    assert (await client.job(f"j-{tag}")).spec.queue == f"q-{tag}"
    assert (await client.workflow(f"w-{tag}")).spec.notify[0].to == (f"ch-{tag}",)
    assert counts(await applied(client, *manifests, owner=tag)) == (0, 0, 0, 10)
    changes: dict[str, dict[str, Any]] = {
        "Queue": {"cap": 5},
        "Calendar": {"mode": "include"},
        "Channel": {"events": []},
        "AlertRule": {"threshold": 60},
        "Job": {"priority": 7},
        "Workflow": {"priority": 7},
        "Trigger": {"when": "true"},
        "Blackout": {"reason": "other"},
        "Reservation": {"slots": 3},
    }
    for one in manifests:
        one["spec"] |= changes[one["kind"]]
    plan = await applied(client, *manifests, owner=tag)
    assert counts(plan) == (0, 10, 0, 0)
    assert {change.kind: [field.path for field in change.fields] for change in plan.changes} == {
        kind: list(fields) for kind, fields in changes.items()
    }
    assert counts(await compared(client, *manifests, owner=tag)) == (0, 0, 0, 10)
    assert counts(await applied(client, owner=tag, prune=True)) == (0, 0, 10, 0)
    with pytest.raises(NotFound):
        await client.job(f"j-{tag}")
    assert counts(await compared(client, owner=tag, prune=True)) == (0, 0, 0, 0)


async def test_nothing_is_written_if_one_manifest_is_refused_while_writing(client: AsyncClient, tag: str) -> None:
    good, bad = (
        job(f"a-{tag}"),
        manifest(
            "Reservation", f"r-{tag}", start_at="2040-01-01T00:00:00Z", end_at="2040-01-02T00:00:00Z", slots=99_999
        ),
    )
    with pytest.raises(Invalid) as error:
        await applied(client, good, bad, manifest("Queue", f"q-{tag}", cap=3))
    assert (error.value.code, pointers(error.value)) == ("not_enough", ["/manifests/1/spec/slots"])
    with pytest.raises(NotFound):
        await client.job(f"a-{tag}")
    assert (await client.manifests("Queue", name=f"q-{tag}")).items == []


async def test_a_dry_run_refuses_the_same_and_writes_nothing(client: AsyncClient, tag: str) -> None:
    assert counts(await applied(client, *every_kind(tag), dry_run=True)) == (10, 0, 0, 0)
    with pytest.raises(NotFound):
        await client.job(f"j-{tag}")
    bad = manifest("Reservation", tag, start_at="2040-01-01T00:00:00Z", end_at="2040-01-02T00:00:00Z", slots=99_999)
    with pytest.raises(Invalid, match="slots"):
        await applied(client, bad, dry_run=True)


async def test_all_problems_of_all_manifests_are_named_at_once(client: AsyncClient, tag: str) -> None:
    with pytest.raises(Invalid) as error:
        await applied(
            client,
            job(f"a-{tag}", priority=11, retires={}),
            job(f"b-{tag}", schedule={"cron": "75 2 * * *"}),
            {"kind": "Jb", "metadata": {"name": "x"}},
            job(f"c-{tag}", notify=[{"on": ["failed"], "to": ["no-such"]}]),
            job(f"d-{tag}", schedule={"cron": "0 2 * * *", "calendar": "no-such"}),
            job(f"d-{tag}"),
            workflow(f"e-{tag}", steps={"a": {"shell": ["x"], "needs": ["b"]}}),
            manifest("Calendar", f"f-{tag}", rules=["x y z"]),
        )
    assert sorted({pointer.split("/")[2] for pointer in pointers(error.value)}) == [*"01234567"]
    assert {"/manifests/0/spec/priority", "/manifests/0/spec/retires", "/manifests/2/kind"} <= set(
        pointers(error.value)
    )


async def test_drift_is_named_and_only_fields_of_the_file_are_overwritten(client: AsyncClient, tag: str) -> None:
    name = f"j-{tag}"
    await applied(client, job(name, timeout="10m", retries={"max": 3}))
    await client.patch_job(name, {"timeout": "1h", "priority": 8, "retries": {"cap": "5m"}})
    (change,) = (await compared(client, job(name, timeout="10m", retries={"max": 3}))).changes
    assert [(field.path, field.old, field.new) for field in change.fields] == [("timeout", "1h", "10m")]
    assert [(d.path, d.applied, d.live, d.kept) for d in change.drift] == [
        ("timeout", "10m", "1h", False),
        ("priority", None, 8, True),
        ("retries.cap", None, "5m", True),
    ]
    await applied(client, job(name, timeout="10m", retries={"max": 3}))
    spec = (await client.job(name)).spec
    assert (spec.timeout, spec.priority, spec.retries.max, spec.retries.cap) == ("10m", 8, 3, "5m")
    # What somebody else set stays, and is named again each time.
    again = await compared(client, job(name, timeout="10m", retries={"max": 3}))
    assert counts(again) == (0, 0, 0, 1)
    assert [d.path for d in again.changes[0].drift] == ["priority", "retries.cap"]


async def test_a_field_dropped_from_the_file_returns_to_its_default_only_if_the_file_had_set_it(
    client: AsyncClient, tag: str
) -> None:
    name = f"j-{tag}"
    await applied(client, job(name, priority=7, retries={"max": 3, "base": "20s"}, metadata={"a": 1, "b": 2}))
    await client.patch_job(name, {"description": "by hand"})
    await applied(client, job(name, retries={"max": 3}, metadata={"a": 1}))
    spec = (await client.job(name)).spec
    assert (spec.priority, spec.retries.base, spec.metadata, spec.description) == (5, "60s", {"a": 1}, "by hand")


async def test_an_explicit_default_overwrites_and_is_no_drift(client: AsyncClient, tag: str) -> None:
    name = f"j-{tag}"
    await applied(client, job(name, priority=5))
    assert (await compared(client, job(name, priority=5))).changes == []
    await client.patch_job(name, {"priority": 9})
    (change,) = (await compared(client, job(name, priority=5))).changes
    assert [(d.path, d.applied, d.live, d.kept) for d in change.drift] == [("priority", 5, 9, False)]
    await applied(client, job(name, priority=5))
    assert (await client.job(name)).spec.priority == 5


async def test_applying_again_writes_no_version_and_no_audit_entry(client: AsyncClient, tag: str) -> None:
    manifests = [job(f"j-{tag}", schedule={"every": "1h"}), workflow(f"w-{tag}")]
    await applied(client, *manifests)
    newest = (await client.audit(limit=1)).items[0].audit_id
    assert counts(await applied(client, *manifests)) == (0, 0, 0, 2)
    assert (await client.audit(limit=1)).items[0].audit_id == newest
    assert ((await client.job(f"j-{tag}")).version, (await client.workflow(f"w-{tag}")).version) == (1, 1)


async def test_each_object_and_the_apply_are_audited(client: AsyncClient, tag: str) -> None:
    await applied(client, job(f"a-{tag}"), job(f"b-{tag}"), owner=tag)
    await applied(client, job(f"a-{tag}", priority=7), owner=tag, prune=True)
    found = [(e.action, e.name) for e in (await client.audit(limit=6)).items]
    assert sorted(found) == sorted(
        [
            ("job.create", f"a-{tag}"),
            ("job.create", f"b-{tag}"),
            ("manifest.apply", tag),
            ("job.edit", f"a-{tag}"),
            ("job.delete", f"b-{tag}"),
            ("manifest.apply", tag),
        ]
    )
    edit = next(e for e in (await client.audit(limit=6)).items if e.action == "job.edit")
    assert edit.details["version"] == 2 and edit.details["fields"] == ["priority"]


async def test_pruning_leaves_what_others_applied_or_made_by_hand(client: AsyncClient, tag: str) -> None:
    await applied(client, job(f"mine-{tag}"), job(f"old-{tag}"), owner=f"a{tag}")
    await applied(client, job(f"theirs-{tag}"), owner=f"b{tag}")
    await client.create_job({"name": f"hand-{tag}", "task": {"kind": "noop"}})
    plan = await applied(client, job(f"mine-{tag}"), owner=f"a{tag}", prune=True)
    assert actions(plan) == [f"delete Job/old-{tag}"]
    for name in ("mine", "theirs", "hand"):
        assert (await client.job(f"{name}-{tag}")).state != "deleted"


async def test_a_job_made_by_hand_under_a_pruned_name_is_not_pruned(client: AsyncClient, tag: str) -> None:
    await applied(client, job(f"j-{tag}"), owner=tag)
    await client.delete_job(f"j-{tag}")
    await client.create_job({"name": f"j-{tag}", "task": {"kind": "noop"}})
    assert counts(await applied(client, owner=tag, prune=True)) == (0, 0, 0, 0)
    assert (await client.job(f"j-{tag}")).state == "active"


async def test_jobs_that_need_one_another_are_pruned_together(client: AsyncClient, tag: str) -> None:
    await applied(client, job(f"a-{tag}"), job(f"b-{tag}", schedule={"every": "1h"}), owner=tag)
    await client.add_need(f"b-{tag}", f"a-{tag}")
    with pytest.raises(Conflict, match=f"Job 'a-{tag}' can't be pruned"):
        await applied(client, job(f"b-{tag}", schedule={"every": "1h"}), owner=tag, prune=True)
    assert counts(await applied(client, owner=tag, prune=True)) == (0, 0, 2, 0)


async def test_objects_of_another_owner_are_refused_unless_taken_over(client: AsyncClient, tag: str) -> None:
    await applied(client, job(f"j-{tag}"), owner="first")
    with pytest.raises(Invalid) as error:
        await applied(client, job(f"j-{tag}", priority=7), owner="second")
    assert (error.value.code, pointers(error.value)) == ("other_owner", ["/manifests/0/metadata/name"])
    plan = await compared(client, job(f"j-{tag}", priority=7), owner="second")
    assert (counts(plan), "'first'" in plan.changes[0].note) == ((0, 1, 0, 0), True)
    assert counts(await applied(client, job(f"j-{tag}", priority=7), owner="second", take_over=True)) == (0, 1, 0, 0)
    assert counts(await compared(client, owner="first", prune=True)) == (0, 0, 0, 0)


async def test_a_plan_that_changed_since_its_review_is_not_written(client: AsyncClient, tag: str) -> None:
    name = f"j-{tag}"
    await applied(client, job(name))
    reviewed = await compared(client, job(name, priority=7))
    await client.patch_job(name, {"priority": 6})
    with pytest.raises(Conflict) as error:
        await applied(client, job(name, priority=7), plan=reviewed.digest)
    assert error.value.code == "plan_changed"
    fresh = await compared(client, job(name, priority=7))
    assert counts(await applied(client, job(name, priority=7), plan=fresh.digest)) == (0, 1, 0, 0)


async def test_a_deploy_neither_pauses_nor_resumes(client: AsyncClient, tag: str) -> None:
    one, two = f"j-{tag}", f"w-{tag}"
    await applied(client, job(one, paused=True, schedule={"every": "1h"}), workflow(two))
    assert (await client.job(one)).state == "paused"
    await client.resume_job(one)
    await client.pause_job(two, reason="maintenance")
    assert counts(await compared(client, job(one, paused=True, schedule={"every": "1h"}), workflow(two))) == (
        0,
        0,
        0,
        2,
    )
    await applied(client, job(one, paused=True, priority=7, schedule={"every": "1h"}), workflow(two, priority=7))
    assert ((await client.job(one)).state, (await client.workflow(two)).state) == ("active", "paused")


async def test_the_plan_shows_old_and_new_fires(client: AsyncClient, tag: str) -> None:
    name = f"j-{tag}"
    (created,) = (await applied(client, job(name, schedule={"cron": "0 2 * * *"}))).changes
    assert [at.hour for at in created.fires_after] == [2, 2, 2]
    (changed,) = (await compared(client, job(name, schedule={"cron": "30 3 * * *"}))).changes
    assert changed.fires_before == created.fires_after
    assert [(at.hour, at.minute) for at in changed.fires_after] == [(3, 30)] * 3
    assert (await compared(client, job(name, schedule={"cron": "0 2 * * *"}, priority=7))).changes[0].fires_after == []
    await applied(client, job(name, schedule={"cron": "0 2 * * *"}), owner="default")
    (deleted,) = [c for c in (await compared(client, owner="default", prune=True)).changes if c.name == name]
    assert deleted.fires_before == created.fires_after


async def test_a_job_may_follow_a_calendar_of_the_same_apply(client: AsyncClient, tag: str) -> None:
    follows = job(f"j-{tag}", schedule={"cron": "0 2 * * *", "calendar": f"c-{tag}"})
    only = manifest("Calendar", f"c-{tag}", dates=["2030-05-05"], mode="include")
    plan = await applied(client, follows, only)
    assert [f"{at:%Y-%m-%d}" for at in next(c for c in plan.changes if c.kind == "Job").fires_after] == ["2030-05-05"]
    only["spec"]["dates"] = ["2031-06-06"]
    follows["spec"]["priority"] = 7
    await applied(client, follows, only)
    found = await client.job(f"j-{tag}")
    assert (found.version, f"{found.next_fire_at:%Y-%m-%d}") == (2, "2031-06-06")


async def test_one_time_jobs_get_their_fire_and_lose_it_when_rescheduled(client: AsyncClient, tag: str) -> None:
    name = f"j-{tag}"
    await applied(client, job(name, schedule={"at": "2040-01-01T00:00:00Z"}))
    (first,) = (await client.executions(filter=f"job:{name}")).items
    assert (first.state, f"{first.fire_at:%Y-%m-%d}") == ("waiting", "2040-01-01")
    await applied(client, job(name, schedule={"at": "2041-01-01T00:00:00Z"}))
    found = {f"{e.fire_at:%Y-%m-%d}": e.state for e in (await client.executions(filter=f"job:{name}")).items}
    assert found == {"2040-01-01": "cancelled", "2041-01-01": "waiting"}


async def test_jobs_fire_after_they_were_created_and_after_they_were_rescheduled(
    cluster: Cluster, client: AsyncClient, tag: str
) -> None:
    names = {f"{n}-{tag}" for n in range(5)}

    async def fired(**schedule: Any) -> None:
        """Apply, and wait until each of the jobs has been executed since."""
        left = set(names)
        async with asyncio.timeout(60), aclosing(client.feed()) as feed:
            await applied(client, *(job(name, schedule=schedule) for name in names))
            now = (await client.job(next(iter(names)))).updated_at
            async for execution in feed:
                if execution.fire_at >= now:
                    left.discard(execution.job)
                if not left:
                    return

    async with cluster.worker(name=f"worker-{tag}"):
        await fired(every="1s")
        await fired(cron="* * * * * *")
        await applied(client, *(job(name) for name in names))


async def test_channels_keep_their_secrets_for_the_same_address_only(client: AsyncClient, tag: str) -> None:
    def hook(url: str, **more: Any) -> dict[str, Any]:
        return manifest("Channel", f"ch-{tag}", target={"kind": "webhook", "url": url, **more})

    with pytest.raises(Invalid) as error:
        await applied(client, hook("https://a.example.com", secret="<stored>"))
    assert (error.value.code, pointers(error.value)) == ("secret_needed", ["/manifests/0/spec/target/secret"])
    plan = await applied(client, hook("https://a.example.com"))
    assert plan.changes[0].secret is not None and plan.changes[0].secret.startswith("whsec_")
    for same in (hook("https://a.example.com", secret="<stored>"), hook("https://a.example.com")):
        assert counts(await applied(client, same)) == (0, 0, 0, 1)
    assert counts(await applied(client, hook("https://a.example.com", secret=plan.changes[0].secret))) == (0, 0, 0, 1)
    with pytest.raises(Invalid) as error:
        await applied(client, hook("https://b.example.com", secret="<stored>"))
    assert error.value.code == "secret_needed"
    other = "whsec_" + "A" * 44
    plan = await applied(client, hook("https://b.example.com", secret=other))
    assert counts(plan) == (0, 1, 0, 0)
    assert other not in str(plan)
    exported = await client.manifests("Channel", name=f"ch-{tag}")
    assert exported.items[0].spec["target"] == {"kind": "webhook", "url": "https://b.example.com", "secret": "<stored>"}


async def test_no_secret_of_a_channel_is_stored_with_the_manifest(
    cluster: Cluster, client: AsyncClient, tag: str
) -> None:
    target = {"kind": "smtp", "host": "mail.example.com", "sender": "a@example.com", "to": ["b@example.com"]}
    secret = manifest("Channel", f"ch-{tag}", target={**target, "username": "me", "password": f"hunter2-{tag}"})
    await applied(client, secret)
    async with cluster.database.connection() as connection:
        rows = await connection.fetch("SELECT * FROM applied_manifests")
        entries = await connection.fetch("SELECT details::text FROM audit")
    assert f"hunter2-{tag}" not in str([dict(row) for row in rows]) + str([dict(row) for row in entries])


async def test_each_kind_needs_the_scope_of_its_own_route(cluster: Cluster, issue: Issue, tag: str) -> None:
    async with AsyncClient(cluster.url, await issue("write", "read")) as writer:
        assert counts(await applied(writer, job(f"j-{tag}"))) == (1, 0, 0, 0)
        for kind in (
            manifest("Queue", f"q-{tag}", cap=1),
            manifest("Reservation", tag, start_at="2040-01-01T00:00:00Z", end_at="2040-01-02T00:00:00Z", anyway=True),
        ):
            with pytest.raises(Forbidden, match="'admin'"):
                await applied(writer, kind)
            assert counts(await compared(writer, kind)) == (1, 0, 0, 0)
    async with AsyncClient(cluster.url, await issue("read")) as reader:
        assert counts(await compared(reader, job(f"k-{tag}"))) == (1, 0, 0, 0)
        with pytest.raises(Forbidden):
            await applied(reader, job(f"k-{tag}"))


async def test_another_tenant_sees_and_prunes_nothing(client: AsyncClient, neighbour: AsyncClient, tag: str) -> None:
    await applied(client, job(f"j-{tag}"), owner=tag)
    assert counts(await applied(neighbour, owner=tag, prune=True)) == (0, 0, 0, 0)
    assert counts(await applied(neighbour, job(f"j-{tag}"), owner="other")) == (1, 0, 0, 0)
    assert {d.metadata["name"] for d in (await neighbour.manifests("Job")).items} == {f"j-{tag}"}


async def test_schedules_count_against_the_quota_of_the_token(cluster: Cluster, tag: str) -> None:
    from mainspring.api.auth import issue_token

    async with cluster.database.connection() as connection:
        token = await issue_token(connection, tenant=1, name="limited", scopes=("write",), schedule_quota=5)
    async with AsyncClient(cluster.url, token) as limited:
        with pytest.raises(TooMany):
            await applied(limited, *(job(f"{n}-{tag}", schedule={"every": "1h"}) for n in range(6)))
        plan = await applied(limited, *(job(f"{n}-{tag}", schedule={"every": "1h"}) for n in range(5)))
        assert counts(plan) == (5, 0, 0, 0)
        assert counts(await applied(limited, job(f"none-{tag}"))) == (1, 0, 0, 0)
        with pytest.raises(TooMany):
            await applied(limited, job(f"more-{tag}", schedule={"every": "1h"}))


async def test_a_blackout_is_replaced_and_one_that_has_ended_is_not_created(client: AsyncClient, tag: str) -> None:
    window = manifest("Blackout", f"b-{tag}", start_at="2040-01-01T00:00:00Z", end_at="2040-01-01T06:00:00Z")
    await applied(client, window)
    before = (await client.blackouts()).items[0]
    window["spec"]["end_at"] = "2040-01-01T07:00:00Z"
    await applied(client, window)
    found = (await client.blackouts()).items
    assert before.blackout_id not in {b.blackout_id for b in found}
    assert found[0].end_at == before.end_at + timedelta(hours=1) if before.end_at else False
    ended = manifest("Blackout", f"old-{tag}", start_at="2020-01-01T00:00:00Z", end_at="2020-01-02T00:00:00Z")
    plan = await applied(client, ended)
    assert (counts(plan), plan.changes[0].note) == ((0, 0, 0, 1), "its window has ended")


async def test_concurrent_applies_of_the_same_manifests_agree(client: AsyncClient, tag: str) -> None:
    manifests = every_kind(tag)[:6]
    plans = await asyncio.gather(*(applied(client, *manifests) for _ in range(6)), return_exceptions=True)
    assert [plan for plan in plans if isinstance(plan, BaseException)] == []
    assert sum(plan.created for plan in plans if isinstance(plan, wire.ManifestPlan)) == 6
    assert (await client.job(f"j-{tag}")).version == 1


async def test_a_name_that_is_a_workflow_cannot_be_a_job(client: AsyncClient, tag: str) -> None:
    await applied(client, workflow(f"x-{tag}"))
    with pytest.raises(Invalid, match=f"there is a workflow 'x-{tag}'"):
        await applied(client, job(f"x-{tag}"))


async def test_requests_are_bounded(client: AsyncClient) -> None:
    with pytest.raises(Invalid):
        await applied(client, *[job("x")] * (wire.MAX_MANIFESTS + 1))
    with pytest.raises(MainspringError) as error:
        await applied(client, job("x", description="x" * 17_000_000))
    assert error.value.code == "too_large"


async def test_many_jobs_take_a_fixed_number_of_statements(
    cluster: Cluster, client: AsyncClient, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What writes a thousand jobs takes hardly more statements than what writes ten; a repeat takes few."""
    asked: list[str] = []
    listen(cluster.database, "connection", lambda record: asked.append(record.query), monkeypatch)

    async def statements(count: int, **spec: Any) -> int:
        asked.clear()
        await applied(client, *(job(f"{count}-{n}-{tag}", **spec) for n in range(count)))
        return len([query for query in asked if query in WRITES])

    for spec in (
        {"schedule": {"cron": "0 2 * * *"}},
        {"schedule": {"cron": "0 2 * * *"}, "priority": 7},
        {"schedule": {"cron": "0 3 * * *"}, "priority": 7},
    ):
        few, many = await statements(10, **spec), await statements(1000, **spec)
        assert many <= few + 3
    assert await statements(1000, schedule={"cron": "0 3 * * *"}, priority=7) <= 2
