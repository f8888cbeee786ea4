"""Jobs over HTTP, from creation to deletion."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from mainspring import wire
from mainspring.api.auth import issue_token
from mainspring.client import AsyncClient
from mainspring.domain.errors import Conflict, Invalid, NotFound
from mainspring.domain.schedule.schedule import ScheduleSpec
from tests.conftest import Cluster
from tests.support.api_jobs import named

FULL: dict[str, Any] = {
    "task": {"kind": "shell", "argv": ["echo", "{{params.who}}"], "env": {"A": "1"}, "cwd": "/tmp", "shell": False},
    "schedule": {"cron": "0 2 * * *", "timezone": "Europe/Berlin", "end_at": "2090-01-01T00:00:00Z"},
    "description": "Says ½ of everything — twice.",
    "metadata": {"team": "ops", "nested": {"list": [1, 2.5, None, True]}},
    "queue": "long",
    "priority": 7,
    "timeout": "90s",
    "retries": {"max": 1, "base": "5s", "cap": "1m", "factor": 3.0, "jitter": "none"},
    "overlap": "allow",
    "misfire": {"policy": "all"},
    "delivery": "at_least_once",
    "paused": False,
    "params": {"who": {"type": "string", "default": "you"}},
}


def holds(found: Any, written: Any) -> bool:
    """Whether everything that was written is there; defaults may have joined it."""
    if isinstance(written, dict) and isinstance(found, dict):
        return all(name in found and holds(found[name], value) for name, value in written.items())
    return bool(found == written)


@pytest.mark.requirement(47, 54)
async def test_what_was_written_is_what_is_read(client: AsyncClient, http: httpx2.AsyncClient) -> None:
    answer = await http.post("/api/v1/jobs", json=named("full", **FULL))
    assert answer.status_code == 201
    found = (await http.get("/api/v1/jobs/full")).json()
    assert {**found, "warnings": ["no worker serves the queue long"]} == answer.json(), "said once, when it is written"
    assert holds(found["spec"], FULL)
    assert (found["version"], found["state"], found["created_by"][:12]) == (1, "active", "test admin [")
    assert found["schedule_description"] == "at 02:00 every day (Europe/Berlin) until 2090-01-01T00:00:00Z"
    job = await client.job(found["job_id"])
    assert job == await client.job("full")
    assert abs((job.created_at - job.updated_at).total_seconds()) < 1


@pytest.mark.requirement(52)
async def test_what_was_not_said_gets_the_defaults(client: AsyncClient) -> None:
    spec = (await client.create_job(named("plain"))).spec
    assert (spec.priority, spec.timeout, spec.queue_name, spec.delivery) == (5, None, "short", "at_least_once")
    assert (spec.retries.max, spec.retries.base, spec.retries.cap) == (3, "60s", "1h")


@pytest.mark.requirement(37)
async def test_jobs_created_at_once_have_ids_of_their_own(client: AsyncClient) -> None:
    made = await asyncio.gather(*[client.create_job(named()) for _ in range(40)])
    assert len({job.job_id for job in made}) == 40
    ran = await asyncio.gather(*[client.trigger(made[0].job_id) for _ in range(40)])
    assert len({execution.execution_id for execution in ran}) == 40


async def test_a_name_is_free_for_one_of_many_at_once(client: AsyncClient) -> None:
    answers = await asyncio.gather(*[client.create_job(named("wanted")) for _ in range(10)], return_exceptions=True)
    assert sum(isinstance(a, wire.Job) for a in answers) == 1
    assert all(a.code == "name_taken" for a in answers if isinstance(a, Conflict))
    assert sum(isinstance(a, Conflict) for a in answers) == 9


async def test_create_read_update_delete_and_list(client: AsyncClient) -> None:
    made = await client.create_job(named("life", schedule={"every": "1h"}))
    changed = await client.patch_job("life", {"priority": 9, "description": "x"})
    assert (changed.version, changed.spec.priority, changed.spec.description) == (2, 9, "x")
    assert changed.next_fire_at == made.next_fire_at, "what was not rescheduled keeps its phase"
    renamed = await client.patch_job("life", {"name": "life-2", "description": None})
    assert (renamed.job_id, renamed.spec.description) == (made.job_id, "")
    with pytest.raises(NotFound):
        await client.job("life")
    assert [job.name for job in (await client.jobs(prefix="life")).items] == ["life-2"]
    await client.delete_job("life-2")
    assert (await client.jobs(prefix="life")).items == []
    with pytest.raises(NotFound):
        await client.job("life-2")
    assert (await client.job(made.job_id)).state == "deleted", "its history can still be found by its id"
    with pytest.raises(NotFound):
        await client.trigger(made.job_id)
    again = await client.create_job(named("life-2"))
    assert again.job_id != made.job_id, "the name is free again"


@pytest.mark.requirement(12)
async def test_deleting_ends_what_has_not_started_and_keeps_the_history(cluster: Cluster, client: AsyncClient) -> None:
    job = await client.create_job(named())
    async with cluster.worker():
        ran = await client.wait((await client.trigger(job.name)).execution_id, timeout_s=20)
    queued = await client.trigger(job.name)
    waiting = await client.trigger(job.name, wire.RunNow(at=later()))
    await client.delete_job(job.name)
    for execution in (queued, waiting):
        found = await client.execution(execution.execution_id)
        assert found.state == "cancelled"
        assert found.reason is not None and "deleted" in found.reason
    assert (await client.job(job.job_id)).state == "deleted"
    made = (await client.history(job.job_id)).items
    assert {e.execution_id: e.state for e in made} == {
        ran.execution_id: "succeeded",
        queued.execution_id: "cancelled",
        waiting.execution_id: "cancelled",
    }
    assert (await client.execution(ran.execution_id)).state == "succeeded", "by its own id too"


async def test_a_change_merges_and_a_new_kind_of_schedule_replaces_the_old(client: AsyncClient) -> None:
    metadata = {"every": 1, "at": 2, "keep": {"cron": 3}}
    schedule = {"cron": "0 2 * * *", "timezone": "Europe/Berlin"}
    job = await client.create_job(named(schedule=schedule, metadata=metadata))
    changed = await client.patch_job(job.name, {"metadata": {"at": None, "keep": {"at": 4}}})
    assert changed.spec.metadata == {"every": 1, "keep": {"cron": 3, "at": 4}}
    changed = await client.patch_job(job.name, {"schedule": {"every": "5m"}})
    assert isinstance(changed.spec.schedule, ScheduleSpec)
    assert (changed.spec.schedule.every, changed.spec.schedule.cron) == ("5m", None)
    assert changed.spec.schedule.timezone == "Europe/Berlin"
    changed = await client.patch_job(job.name, {"schedule": None})
    assert (changed.spec.schedule, changed.next_fire_at, changed.state) == (None, None, "active")


async def test_changes_at_once_are_all_kept(client: AsyncClient) -> None:
    job = await client.create_job(named())
    await asyncio.gather(*[client.patch_job(job.name, {"metadata": {f"k{n}": n}}) for n in range(10)])
    found = await client.job(job.name)
    assert (found.version, found.spec.metadata) == (11, {f"k{n}": n for n in range(10)})


async def test_pause_and_resume(client: AsyncClient) -> None:
    job = await client.create_job(named(schedule={"every": "1h"}))
    paused = await client.pause_job(job.name, "too loud")
    assert (paused.state, paused.pause_reason, paused.next_fire_at) == ("paused", "too loud", None)
    again = await client.pause_job(job.name, "once more")
    assert again.state == "paused"
    assert len((await client.fires(job.name, count=3)).fires) == 3, "as if it were not paused"
    resumed = await client.resume_job(job.name)
    assert (resumed.state, resumed.pause_reason) == ("active", None)
    assert resumed.next_fire_at is not None
    assert (await client.resume_job(job.name)).state == "active"


async def test_a_one_time_job_is_finished_once_it_ran(cluster: Cluster, client: AsyncClient) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=0.5)
    job = await client.create_job(named(schedule={"at": soon.isoformat()}))
    assert (job.state, job.next_fire_at) == ("active", soon.replace(microsecond=soon.microsecond // 1000 * 1000))
    (execution,) = (await client.history(job.name)).items
    async with cluster.worker():
        assert (await client.wait(execution.execution_id, timeout_s=20)).state == "succeeded"
    done = await client.job(job.name)
    assert (done.state, done.next_fire_at, [e.state for e in done.last]) == ("finished", None, ["succeeded"])


@pytest.mark.requirement(8)
async def test_next_fire_last_fire_and_last_state_move(cluster: Cluster, client: AsyncClient) -> None:
    job = await client.create_job(named(schedule={"every": 1}))
    assert job.last == []
    assert job.next_fire_at is not None
    fires = []
    async with cluster.worker():
        async for execution in client.feed():
            if execution.job == job.name and execution.state == "succeeded" and execution.fire_at not in fires:
                fires.append(execution.fire_at)
                found = await client.job(job.name)  # a status read: up to a second old
                async with asyncio.timeout(30):
                    while (execution.fire_at, "succeeded") not in [(last.fire_at, last.state) for last in found.last]:
                        found = await client.job(job.name)
                assert found.next_fire_at is not None
                assert found.next_fire_at > execution.fire_at
                if len(fires) == 2:
                    break
        await client.delete_job(job.name)
    assert fires[1] - fires[0] == timedelta(seconds=1)
    assert fires[0] > job.created_at


@pytest.mark.requirement(9)
async def test_a_trigger_answers_with_its_execution_and_leaves_the_cadence_alone(
    client: AsyncClient, http: httpx2.AsyncClient
) -> None:
    job = await client.create_job(named(schedule={"cron": "0 0 1 1 *"}))
    answer = await http.post(f"/api/v1/jobs/{job.name}/trigger")
    assert answer.status_code == 201
    execution = answer.json()
    assert answer.headers["location"] == f"/api/v1/executions/{execution['execution_id']}"
    assert (execution["trigger"], execution["state"], execution["created_by"][:12]) == (
        "manual",
        "queued",
        "test admin [",
    )
    assert (await client.job(job.name)).next_fire_at == job.next_fire_at


@pytest.mark.requirement(9)
async def test_what_is_triggered_starts_without_waiting_for_the_next_fire(
    cluster: Cluster, client: AsyncClient
) -> None:
    job = await client.create_job(named(schedule={"cron": "0 0 1 1 *"}))
    before = (await client.fires(job.name, count=3)).fires
    async with cluster.worker():
        made = await client.trigger(job.name)
        done = await client.wait(made.execution_id, timeout_s=20)
    assert (done.state, done.attempt) == ("succeeded", 1)
    assert done.started_at is not None and done.started_at < before[0]
    assert (await client.fires(job.name, count=3)).fires == before


@pytest.mark.requirement(6)
async def test_a_one_time_job_for_yesterday_is_refused(client: AsyncClient, http: httpx2.AsyncClient) -> None:
    past = {"at": (datetime.now(UTC) - timedelta(days=1)).isoformat()}
    refused = await http.post("/api/v1/jobs", json=named("yesterday", schedule=past))
    assert (refused.status_code, refused.json()["code"]) == (422, "past_time")
    assert refused.json()["errors"][0]["pointer"] == "/schedule/at"
    assert (await http.get("/api/v1/jobs/yesterday")).status_code == 404, "nothing was created"
    job = await client.create_job(named(schedule={"at": later().isoformat()}))
    assert (await http.patch(f"/api/v1/jobs/{job.name}", json={"schedule": past})).status_code == 422
    assert (await client.job(job.name)).next_fire_at == job.next_fire_at


@pytest.mark.requirement(1)
async def test_a_daily_cron_shows_tomorrow_and_a_bad_one_names_its_field(
    client: AsyncClient, http: httpx2.AsyncClient
) -> None:
    job = await client.create_job(named(schedule={"cron": "0 2 * * *"}))
    assert job.next_fire_at is not None
    today = job.created_at.replace(hour=2, minute=0, second=0, microsecond=0)
    assert job.next_fire_at == (today if job.created_at < today else today + timedelta(days=1))
    for cron, field in (
        ("60 2 * * *", "minute"),
        ("0 24 * * *", "hour"),
        ("0 2 32 * *", "day of month"),
        ("0 2 * 13 *", "month"),
        ("0 2 * * 8", "day of week"),
    ):
        refused = await http.post("/api/v1/jobs", json=named("wrong", schedule={"cron": cron}))
        assert (refused.status_code, refused.json()["code"]) == (422, "bad_cron")
        (error,) = refused.json()["errors"]
        assert error["pointer"] == "/schedule/cron" and error["message"].startswith(f"{field} field: "), error
        assert (await http.get("/api/v1/jobs/wrong")).status_code == 404, "nothing was created"


@pytest.mark.requirement(5)
@pytest.mark.parametrize("after_s", [0, -1, -86_400])
async def test_an_end_that_is_not_after_its_start_is_refused(
    client: AsyncClient, http: httpx2.AsyncClient, after_s: int
) -> None:
    start = later()
    window = {"start_at": start.isoformat(), "end_at": (start + timedelta(seconds=after_s)).isoformat()}
    name = f"backwards-{abs(after_s)}"
    refused = await http.post("/api/v1/jobs", json=named(name, schedule={"every": 1, **window}))
    assert (refused.status_code, refused.json()["code"]) == (422, "bad_window")
    assert refused.json()["errors"][0]["pointer"] == "/schedule/end_at"
    assert (await http.get(f"/api/v1/jobs/{name}")).status_code == 404, "nothing was created"
    job = await client.create_job(named(schedule={"every": 1, "start_at": window["start_at"]}))
    changed = await http.patch(f"/api/v1/jobs/{job.name}", json={"schedule": {"end_at": window["end_at"]}})
    assert changed.status_code == 422, "nor may an edit"


async def test_the_next_fires(client: AsyncClient) -> None:
    schedule = {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}
    job = await client.create_job(named(schedule=schedule))
    after = datetime(2027, 3, 27, 12, tzinfo=UTC)
    fires = await client.fires(job.name, count=2, after=after)
    # 02:30 does not exist on the day the clocks go forward.
    assert fires.fires == [datetime(2027, 3, 28, 1, 0, tzinfo=UTC), datetime(2027, 3, 29, 0, 30, tzinfo=UTC)]
    assert fires.timezone == "Europe/Berlin"
    assert fires.notes
    assert job.next_fire_at == (await client.fires(job.name, count=1)).fires[0]


async def test_the_calendar_ends_somewhere(client: AsyncClient) -> None:
    job = await client.create_job(named(schedule={"cron": "0 2 * * *"}))
    end = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert (await client.fires(job.name, after=end)).fires == []
    assert len((await client.fires(job.name, after=datetime(1, 1, 1, tzinfo=UTC), count=3)).fires) == 3


async def test_pages_visit_each_job_once_while_jobs_come_and_go(client: AsyncClient) -> None:
    names = [f"page-{n:02}" for n in range(23)]
    for name in names:
        await client.create_job(named(name))
    seen: list[str] = []
    cursor = None
    for turn in range(100):
        page = await client.jobs(limit=5, cursor=cursor, prefix="page-")
        seen += [job.name for job in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
        await client.create_job(named(f"page-{turn:02}-new"))
        await client.delete_job(seen[-1])
    assert len(seen) == len(set(seen))
    assert set(names) <= set(seen)


def later() -> datetime:
    return datetime.now(UTC) + timedelta(hours=1)


async def test_lists_take_the_same_filter_as_pages(client: AsyncClient) -> None:
    job = await client.create_job(named(metadata={"team": "finance"}))
    made = await client.trigger(job.name)
    assert [j.name for j in (await client.jobs(filter=f"label:team=finance {job.name}")).items] == [job.name]
    found = await client.executions(filter=f"job:{job.name} since:1h")
    assert [e.execution_id for e in found.items] == [made.execution_id]
    with pytest.raises(Invalid) as raised:
        await client.jobs(filter="sate:paused")
    assert (raised.value.code, raised.value.problems[0].hint) == ("bad_filter", "did you mean 'state'?")


@pytest.mark.requirement(62)
async def test_the_history_of_a_job_and_of_a_user(cluster: Cluster, http: httpx2.AsyncClient) -> None:
    """Newest first, page by page, by outcome; and the jobs that somebody wrote."""
    async with cluster.database.connection() as connection:
        token = await issue_token(connection, tenant=1, name="a new user", scopes=("read", "write"))
    job = (await http.post("/api/v1/jobs", json=named())).json()["name"]
    later = {"at": "2090-01-01T00:00:00Z"}
    made = []
    for n in range(6):
        headers = {"Authorization": f"Bearer {token}"} if n % 2 else {}
        answer = await http.post(f"/api/v1/jobs/{job}/trigger", json=later, headers=headers)
        made.append(answer.json()["execution_id"])
    made.sort(reverse=True)
    theirs = [
        e for e in made if (await http.get(f"/api/v1/executions/{e}")).json()["created_by"].startswith("a new user [")
    ]
    gone = theirs[0]
    await http.post(f"/api/v1/executions/{gone}/cancel")

    async def listed(path: str, **query: str) -> list[str]:
        found, cursor = list[str](), ""
        while True:
            page = (
                await http.get(path, params={**query, "limit": "2", **({"cursor": cursor} if cursor else {})})
            ).json()
            assert len(page["items"]) <= 2
            found += [e["execution_id"] for e in page["items"]]
            if not (cursor := page["next_cursor"] or ""):
                return found

    assert await listed(f"/api/v1/jobs/{job}/executions") == made
    assert await listed(f"/api/v1/jobs/{job}/executions", state="cancelled") == [gone]
    assert await listed("/api/v1/executions", filter=f'job:{job} by:"a new user"') == theirs
    assert await listed("/api/v1/executions", filter=f'job:{job} by:"a new user" state:cancelled') == [gone]
    assert await listed("/api/v1/executions", filter='by:"a new user" state:cancelled') == [gone]
    assert await listed("/api/v1/executions", filter='by:"a new user"') == theirs
    assert await listed("/api/v1/executions", filter=f"job:{job} by:nobody") == []

    own = named()
    await http.post("/api/v1/jobs", json=own, headers={"Authorization": f"Bearer {token}"})
    written = (await http.get("/api/v1/jobs", params={"filter": 'by:"a new user"'})).json()["items"]
    assert [j["name"] for j in written] == [own["name"]]
