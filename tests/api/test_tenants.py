"""Tenants over the API: quotas where they are exceeded, suspension, deletion, shares."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.clock import instant
from mainspring.domain.errors import Conflict, Forbidden, Invalid, NotFound, TooMany, Unauthenticated
from mainspring.store.db import database_now_ms
from tests.conftest import Cluster
from tests.support.pages import NAVIGATION, sign_in
from tests.support.processes import until_async

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def tenant(cluster: Cluster, client: AsyncClient, **quotas: Any) -> AsyncIterator[tuple[str, AsyncClient]]:
    """A new tenant with its administrator."""
    name = f"t-{uuid4().hex[:8]}"
    await client.create_tenant(wire.NewTenant(name=name, **quotas))
    issued = await client.issue_tenant_token(name, wire.NewToken(name="first", role="admin"))
    async with AsyncClient(cluster.url, issued.token) as own:
        yield name, own


def job(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "task": {"kind": "noop"}, **fields}


def document(name: str) -> dict[str, Any]:
    return {"kind": "Job", "metadata": {"name": name}, "spec": {"task": {"kind": "noop"}}}


async def test_the_job_quota_holds_for_all_ways_of_creating_jobs(cluster: Cluster, client: AsyncClient) -> None:
    async with tenant(cluster, client, max_jobs=2) as (name, own):
        made = await asyncio.gather(*(own.create_job(job(f"j{n}")) for n in range(6)), return_exceptions=True)
        assert sum(isinstance(answer, wire.Job) for answer in made) == 2
        (refusal, *_) = [answer for answer in made if isinstance(answer, Forbidden)]
        assert refusal.code == "quota_exceeded"
        for word in ("max_jobs", "2", "cluster administrator"):
            assert word in refusal.message
        with pytest.raises(Forbidden, match="max_jobs"):
            await own.apply_workflow({"name": "flow", "steps": {"a": {"task": {"kind": "noop"}}}})
        with pytest.raises(Forbidden, match="max_jobs"):
            await own.apply_manifests(wire.ApplyManifests(manifests=[document("m")], owner="test"))
        await client.edit_tenant(name, wire.TenantSettings(max_jobs=3))
        await own.create_job(job("third"))


async def test_the_queue_quota_holds_for_submissions(cluster: Cluster, client: AsyncClient) -> None:
    async with tenant(cluster, client, max_queued=3) as (_, own):
        await own.create_job(job("waits"))
        answers = await asyncio.gather(*(own.trigger("waits") for _ in range(8)), return_exceptions=True)
        assert sum(isinstance(answer, wire.Execution) for answer in answers) == 3
        assert {a.code for a in answers if isinstance(a, Forbidden)} == {"quota_exceeded"}
        with pytest.raises(Forbidden, match="max_queued allows 3"):
            await own.submit([wire.BatchItem(job="waits")])
        with pytest.raises(Forbidden, match="max_queued"):
            await own.trigger("waits", wire.RunNow(reason="audited"))
        execution = (await own.executions()).items[0]
        await own.cancel(execution.execution_id)
        await own.trigger("waits")


async def test_minimum_interval_and_required_end(cluster: Cluster, client: AsyncClient) -> None:
    async with tenant(cluster, client, min_interval_s=60, end_required=True) as (_, own):
        end = "2099-01-01T00:00:00Z"
        for schedule in ({"every": "10s", "end_at": end}, {"cron": "*/10 * * * * *", "end_at": end}):
            with pytest.raises(Invalid, match="min_interval") as error:
                await own.create_job(job("fast", schedule=schedule))
            assert error.value.code == "quota_exceeded"
        with pytest.raises(Invalid, match="end_required"):
            await own.create_job(job("endless", schedule={"every": "1h"}))
        await own.create_job(job("fine", schedule={"every": "1m", "end_at": end}))
        with pytest.raises(Invalid, match="min_interval"):
            await own.patch_job("fine", {"schedule": {"every": "5s", "end_at": end}})


@pytest.mark.requirement(128)
async def test_all_tokens_of_a_user_share_the_schedules_per_hour(cluster: Cluster, client: AsyncClient) -> None:
    async with tenant(cluster, client, schedules_per_hour=2) as (_, own):
        await own.create_user(wire.NewUser(name="analyst", role="submitter"))
        tokens = [(await own.issue_token(wire.NewToken(name=f"t{n}", user="analyst"))).token for n in range(2)]
        async with AsyncClient(cluster.url, tokens[0]) as one, AsyncClient(cluster.url, tokens[1]) as two:
            await one.create_job(job("a", schedule={"every": "1h"}))
            await two.create_job(job("b", schedule={"every": "1h"}))
            with pytest.raises(TooMany, match="2 schedules per hour is used up until 20") as error:
                await one.create_job(job("c", schedule={"every": "1h"}))
            assert error.value.code == "quota_used_up" and 0 < error.value.retry_after_s <= 3600
        await own.create_job(job("other", schedule={"every": "1h"}))  # of another principal


async def test_a_suspended_tenant_neither_asks_fires_nor_starts(cluster: Cluster, client: AsyncClient) -> None:
    async with tenant(cluster, client) as (name, own):
        fleet = await own.issue_worker_token(wire.NewWorkerToken(name="fleet", queues=["*"]))
        await own.create_job(job("ticks", schedule={"every": "1s"}, misfire={"policy": "latest"}))
        queued = (await own.trigger("ticks")).execution_id
        suspended = await client.suspend_tenant(name, "unpaid")
        assert suspended.suspended_at is not None and suspended.suspend_reason == "unpaid"

        async def refused() -> bool:
            try:
                await own.jobs()
            except Forbidden as error:
                return error.code == "tenant_suspended" and "suspended" in error.message
            return False

        await until_async("requests are refused", refused, within_s=10)
        async with cluster.database.connection() as connection:
            paused = await connection.fetchval(
                "SELECT paused_at FROM jobs JOIN tenants USING (tenant_id) WHERE tenants.name = $1", name
            )
            assert paused is not None
            dispatcher = cluster.context.dispatcher

            async def known() -> bool:
                return bool(dispatcher._settings._suspended)

            await until_async("dispatchers know", known, within_s=10)
        cluster_worker, cluster.worker_token = cluster.worker_token, fleet.token
        try:
            async with cluster.worker(name="fleet-1"):
                # The worker waits with free slots, and the dispatcher has looked for work for it more than once.
                for _ in range(3):
                    await dispatcher._look_for_queued()
                    await dispatcher.claim_queued()
                    async with cluster.database.connection() as connection:
                        state = await connection.fetchval(
                            "SELECT state FROM executions WHERE execution_id = $1", queued
                        )
                    assert state == "queued"
                async with cluster.database.connection() as connection:
                    before = instant(await database_now_ms(connection))
                await client.resume_tenant(name)

                async def started() -> bool:
                    try:
                        return (await own.execution(queued)).state == "succeeded"
                    except Forbidden:
                        return False

                await until_async("what was queued runs", started, within_s=20)
                ended = await own.execution(queued)
                assert ended.started_at is not None and ended.started_at >= before
        finally:
            cluster.worker_token = cluster_worker
        assert (await own.job("ticks")).paused_at is None


async def test_the_page_says_that_the_tenant_is_suspended(cluster: Cluster, client: AsyncClient) -> None:
    async with tenant(cluster, client) as (name, own):
        token = (await own.issue_token(wire.NewToken(name="browser", role="viewer"))).token
        async with httpx2.AsyncClient(base_url=cluster.url, headers=NAVIGATION, timeout=30) as browser:
            await sign_in(browser, token)
            assert (await browser.get("/jobs")).status_code == 200
            await client.suspend_tenant(name)

            async def shown() -> bool:
                answer = await browser.get("/jobs")
                return answer.status_code == 403 and "is suspended" in answer.text

            await until_async("the page says so", shown, within_s=10)


async def test_a_tenant_is_deleted_after_suspension_only(cluster: Cluster, client: AsyncClient) -> None:
    async with tenant(cluster, client) as (name, own):
        await own.create_job(job("kept", schedule={"every": "1h"}))
        await own.create_user(wire.NewUser(name="auditor", role="viewer"))
        with pytest.raises(Conflict, match="suspend the tenant"):
            await client.delete_tenant(name)
        await client.suspend_tenant(name)
        exported = await client.export_tenant(name)
        assert [m.metadata["name"] for m in exported.manifests if m.kind == "Job"] == ["kept"]
        assert [u.name for u in exported.users] == ["auditor"] and [t.name for t in exported.tokens] == ["first"]
        await client.delete_tenant(name)
        for gone in (client.tenant(name), client.delete_tenant(name), client.resume_tenant(name)):
            with pytest.raises(NotFound):
                await gone
        with pytest.raises(Unauthenticated):
            await own.jobs()
        await client.create_tenant(wire.NewTenant(name=name))  # the name is free again


async def test_a_tenant_with_running_executions_is_not_deleted(cluster: Cluster, client: AsyncClient) -> None:
    async with tenant(cluster, client) as (name, own):
        await own.create_job(job("runs"))
        execution = (await own.trigger("runs")).execution_id
        await client.suspend_tenant(name)
        async with cluster.database.transaction() as connection:
            await connection.execute(
                "UPDATE executions SET state = 'running', session_id = $2, attempt = 1, started_at = db_now()"
                " WHERE execution_id = $1", execution, uuid4(),
            )  # fmt: skip
        with pytest.raises(Conflict, match="are running"):
            await client.delete_tenant(name)
        assert (await client.tenant(name)).suspended_at is not None


async def test_shares_follow_weights(cluster: Cluster, client: AsyncClient) -> None:
    async with tenant(cluster, client, weight=3) as (heavy, one), tenant(cluster, client, weight=1) as (light, two):
        for own in (one, two):
            await own.create_job(job("waits"))
            await own.trigger("waits")
        found = {t.name: t.share for t in (await client.tenants(limit=500)).items}
        assert found[heavy].waiting == found[light].waiting == 1
        assert found[heavy].entitled == pytest.approx(3 * found[light].entitled, rel=0.01)


async def test_only_cluster_administrators_manage_tenants(cluster: Cluster, client: AsyncClient) -> None:
    async with tenant(cluster, client) as (name, own):
        for act in (own.tenants(), own.tenant("default"), own.create_tenant(wire.NewTenant(name="x")),
                    own.edit_tenant(name, wire.TenantSettings(max_jobs=None)), own.suspend_tenant("default"),
                    own.export_tenant("default")):  # fmt: skip
            with pytest.raises(Forbidden, match="'cluster'"):
                await act
        with pytest.raises(Conflict, match="first tenant"):
            await client.suspend_tenant("default")
        with pytest.raises(Conflict):
            await client.create_tenant(wire.NewTenant(name=name))
        with pytest.raises(Invalid):
            await client.create_tenant(wire.NewTenant(name="Not a name"))
