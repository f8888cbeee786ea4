"""The history of a deleted job is found by its name, in the API and by the commands."""

from __future__ import annotations

from uuid import uuid4

import pytest

from mainspring import wire
from mainspring.api.auth import issue_token
from mainspring.client import AsyncClient
from mainspring.domain.errors import Invalid, NotFound
from tests.conftest import Cluster
from tests.support.api_jobs import noop
from tests.support.shell import Shell

pytestmark = pytest.mark.anyio


@pytest.fixture
def name() -> str:
    return f"tick-{uuid4().hex[:8]}"


async def run_and_delete(cluster: Cluster, name: str) -> wire.Execution:
    async with cluster.client() as client, cluster.worker():
        await client.create_job(noop(name=name))
        done = await client.wait((await client.trigger(name)).execution_id, timeout_s=30)
        await client.delete_job(name, reason="no longer needed")
    return done


async def test_a_deleted_job_is_found_by_its_name(cluster: Cluster, name: str) -> None:
    done = await run_and_delete(cluster, name)
    async with cluster.client() as client:
        for page in (
            await client.history(name),
            await client.executions(filter=f"job:{name}"),
            await client.executions(filter=f"job:{name} state:succeeded"),
        ):
            assert [e.execution_id for e in page.items] == [done.execution_id]
        assert [v.version for v in (await client.versions(name)).items] == [1]
        assert (await client.ledger(name)).items == []
        assert next(r.code for r in (await client.why_job(name)).reasons) == "job_deleted"
        (job,) = (await client.jobs(filter=f"state:deleted name:{name}")).items
        assert (job.name, job.state, job.job_id) == (name, "deleted", done.job_id)
        assert (await client.jobs(filter=f"name:{name}")).items == []
        actions = [entry.action for entry in (await client.audit(subject=name)).items]
        assert actions[0] == "job.delete" and actions[-1] == "job.create"


async def test_what_changes_a_job_does_not_find_a_deleted_one_and_says_where_its_history_is(
    cluster: Cluster, name: str
) -> None:
    await run_and_delete(cluster, name)
    async with cluster.client() as client:
        for change in (
            client.job(name),
            client.trigger(name),
            client.pause_job(name, "x"),
            client.patch_job(name, {"priority": 3}),
            client.delete_job(name),
        ):
            with pytest.raises(NotFound):
                await change
        with pytest.raises(NotFound, match=f"was deleted at .*mainspring jobs history {name}"):
            await client.job(name)


async def test_a_new_job_of_the_same_name_does_not_hide_the_history_of_the_old_one(cluster: Cluster, name: str) -> None:
    old = await run_and_delete(cluster, name)
    async with cluster.client() as client:
        await client.create_job(noop(name=name, queue=name))
        new = await client.trigger(name)
        assert [e.execution_id for e in (await client.history(name)).items] == [new.execution_id]
        found = [e.execution_id for e in (await client.executions(filter=f"job:{name}")).items]
        assert found == [new.execution_id, old.execution_id]
        by_id = [e.execution_id for e in (await client.executions(filter=f"job:{old.job_id}")).items]
        assert by_id == [old.execution_id]
        subjects = {entry.subject for entry in (await client.audit(subject=name)).items}
        assert {str(old.job_id), str(new.job_id)} <= subjects


async def test_deleted_jobs_of_one_name_are_listed_page_by_page(cluster: Cluster, name: str) -> None:
    async with cluster.client() as client:
        created = set()
        for _ in range(5):
            created.add((await client.create_job(noop(name=name))).job_id)
            await client.delete_job(name)
        found: list[wire.Job] = []
        cursor = None
        for _ in range(5):
            page = await client.jobs(filter=f"state:deleted name:{name}", limit=2, cursor=cursor)
            found += page.items
            if (cursor := page.next_cursor) is None:
                break
        assert len(found) == 5 and {job.job_id for job in found} == created
        assert (await client.jobs(filter=f"state:deleted name:{name} queue:long")).items == []
        with pytest.raises(Invalid, match="listed alone"):
            await client.jobs(filter="state:deleted,active")
        with pytest.raises(Invalid, match="cursor"):
            await client.jobs(filter="state:deleted", cursor=name)
        with pytest.raises(Invalid, match="cursor"):
            await client.jobs(filter="state:active", cursor=f"{name} {uuid4()}")


async def test_dead_letters_of_a_deleted_job_are_listed_and_dismissed_by_its_name(cluster: Cluster, name: str) -> None:
    async with cluster.client() as client, cluster.worker():
        task = {"kind": "shell", "argv": ["false"]}
        await client.create_job(noop(name=name, task=task, retries={"max": 0}))
        done = await client.wait((await client.trigger(name)).execution_id, timeout_s=30)
        await client.delete_job(name)
        await client.create_job(noop(name=name))
        assert [letter.dead_letter_id for letter in (await client.dead_letters(job=name)).items] == [done.execution_id]
        dismissed = await client.dismiss_dead_letters(wire.DismissMany(job=name, reason="it is gone"))
        assert dismissed.dismissed == 1


async def test_the_commands_find_a_deleted_job(cluster: Cluster, name: str) -> None:
    done = await run_and_delete(cluster, name)
    mainspring, execution = Shell(cluster), str(done.execution_id)
    assert execution in (await mainspring("-o", "json", "jobs", "history", name)).output
    assert execution in (await mainspring("-o", "json", "executions", "list", f"job:{name}")).output
    assert name in (await mainspring("jobs", "list", "state:deleted", f"name:{name}")).output
    listed = (await mainspring("audit", "list", "--subject", name)).output
    assert "job.delete" in listed and "no longer needed" in listed
    missing = await mainspring("jobs", "get", name, code=3)
    assert "was deleted at" in missing.output


async def test_another_tenants_deleted_jobs_are_not_found(cluster: Cluster, name: str) -> None:
    await run_and_delete(cluster, name)
    async with cluster.database.connection() as connection:
        other = await connection.fetchval("INSERT INTO tenants (name) VALUES ($1) RETURNING tenant_id", name)
        token = await issue_token(connection, tenant=other, name="other", scopes=("admin",))
    async with AsyncClient(cluster.url, token) as client:
        for read in (client.history(name), client.executions(filter=f"job:{name}"), client.versions(name)):
            with pytest.raises(NotFound):
                await read
        assert (await client.jobs(filter="state:deleted")).items == []
        assert (await client.audit(subject=name)).items == []
