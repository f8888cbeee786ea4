"""Metrics, doctor, shards and the system page name what other tenants have to cluster administrators only."""

from __future__ import annotations

import httpx2
import pytest

from mainspring import wire
from mainspring.api.auth import issue_token
from mainspring.client import AsyncClient
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.roles import CLUSTER_SCOPE
from mainspring.telemetry import metrics
from tests.conftest import Cluster
from tests.support.api_tokens import Issue
from tests.support.pages import NAVIGATION, open_page, sign_in
from tests.support.tenants import add_tenant

pytestmark = pytest.mark.anyio

SECRETS = ("secret-queue", "secret-job", "secret-channel")


@pytest.fixture(scope="module")
async def neighbours(cluster: Cluster) -> int:
    """A tenant with a queue, a job that violates an invariant, and a channel."""
    tenant = await add_tenant(cluster.database, "secret-tenant")
    async with cluster.database.connection() as connection:
        token = await issue_token(connection, tenant=tenant, name="secret-admin", scopes=("admin",))
    async with AsyncClient(cluster.url, token) as client:
        for name in ("secret-job", "secret-parent"):
            await client.create_job(JobSpec(name=name, task=NoopTask(), queue="secret-queue"))
        await client.trigger("secret-job", wire.RunNow())
    async with cluster.database.connection() as connection:
        # A dependency on a deleted job, as old versions left them.
        await connection.execute(
            "INSERT INTO job_needs (child_id, parent_id, tenant_id, created_by)"
            " SELECT c.job_id, p.job_id, c.tenant_id, ''"
            " FROM jobs c, jobs p WHERE c.name = 'secret-job' AND p.name = 'secret-parent'"
        )
        await connection.execute("UPDATE jobs SET deleted_at = db_now() WHERE name = 'secret-parent'")
    metrics.ALERT_DELIVERIES.labels("secret-channel", "delivered").inc()
    return tenant


async def seen_by(cluster: Cluster, token: str) -> str:
    """Everything that a token gets to see of the system."""
    text = ""
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(base_url=cluster.url, headers=headers, trust_env=False, timeout=60) as http:
        for path in ("/metrics", "/api/v1/doctor", "/api/v1/system/shards", "/system?doctor=1"):
            answer = await http.get(path)
            assert answer.status_code in (200, 403)
            text += answer.text
    return text


async def test_only_cluster_administrators_see_the_names_of_others(
    cluster: Cluster, issue: Issue, neighbours: int
) -> None:
    everything = await seen_by(cluster, cluster.token)
    assert all(secret in everything for secret in SECRETS)
    third = await add_tenant(cluster.database, "third")
    for token in (await issue("read"), await issue("admin", tenant=third), await issue("read", tenant=third)):
        seen = await seen_by(cluster, token)
        assert "mainspring_jobs_scheduled" in seen
        assert [secret for secret in ("secret", *SECRETS) if secret in seen] == []
    own = await seen_by(cluster, await issue("admin", tenant=neighbours))
    assert "secret-queue" in own and "secret-job" in own, "a tenant sees its own"


async def test_a_token_may_have_the_scope_alone(cluster: Cluster, issue: Issue, neighbours: int) -> None:
    assert "secret-queue" in await seen_by(cluster, await issue("read", CLUSTER_SCOPE))


async def test_shards_have_no_hosts_for_other_administrators(cluster: Cluster, neighbour: AsyncClient) -> None:
    async with cluster.client() as client:
        all_of_it = await client.shards()
    found = await neighbour.shards()
    (process,) = found.schedulers
    assert all_of_it.schedulers[0].host and not process.host
    assert {shard.owner for shard in found.shards} == {process.name} == {str(process.scheduler_id)}


async def test_only_a_cluster_administrator_grants_the_scope(cluster: Cluster, issue: Issue, neighbours: int) -> None:
    form = {"name": "monitoring", "scope_read": "1", f"scope_{CLUSTER_SCOPE}": "1"}
    for token, status in ((cluster.token, 200), (await issue("admin", tenant=neighbours), 403)):
        async with httpx2.AsyncClient(base_url=cluster.url, headers=NAVIGATION, timeout=30) as browser:
            await sign_in(browser, token)
            page = await open_page(browser, "/settings")
            offered = f"scope-{CLUSTER_SCOPE}" in page.ids()
            answer = await browser.post("/settings/tokens", data=form | {"csrf": page.csrf})
            assert (answer.status_code, offered) == (status, status == 200)
