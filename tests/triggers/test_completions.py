"""The end of one execution starts another: which ends count, with which params, and exactly once."""

from __future__ import annotations

import asyncio
import signal
import sys
from uuid import uuid4

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import Invalid
from mainspring.domain.job import JobSpec, ShellTask
from mainspring.domain.params import Param
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.trigger import CompletionSource, TriggerOutcome
from mainspring.domain.workflow.spec import Step, WorkflowSpec
from mainspring.intake.triggers.completions import decide_pending
from mainspring.store.db import Database
from tests.conftest import Cluster
from tests.support.processes import until_async

pytestmark = pytest.mark.anyio
PASSES = ShellTask(argv=("true",))
FAILS = ShellTask(argv=("false",))
STOPS = """
import asyncio, os, signal, sys
from mainspring.intake.triggers import completions, deliver
from mainspring.store import triggers
from mainspring.store.db import Database

async def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    if sys.argv[2] == "before the commit":
        triggers.decide_delivery = die
    async with Database(sys.argv[1], size=2) as database:
        await completions.decide_pending(database)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.fixture
def no_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what settling has recorded counts."""

    async def nothing(connection: object, *, per_trigger: int) -> int:
        return 0

    monkeypatch.setattr("mainspring.store.triggers.notice_missed_ends", nothing)


async def new_job(client: AsyncClient, task: ShellTask = PASSES, **more: object) -> str:
    name = f"job-{uuid4().hex[:8]}"
    await client.create_job(JobSpec(name=name, task=task, retries=RetryPolicy(max=0), **more))  # type: ignore[arg-type]
    return name


async def after(
    client: AsyncClient, parent: str, child: str, *outcomes: TriggerOutcome, **more: object
) -> wire.Trigger:
    source = CompletionSource(after=parent, outcomes=outcomes or ("succeeded",))
    return await client.add_trigger(
        wire.NewTrigger(name=f"t-{uuid4().hex[:8]}", source=source, job=child, **more)  # type: ignore[arg-type]
    )


async def delivered(client: AsyncClient, name: str, count: int = 1) -> list[wire.TriggerDelivery]:
    async def there() -> bool:
        found = (await client.trigger_deliveries(name)).items
        return len(found) >= count and all(one.outcome != "pending" for one in found)

    await until_async("decided", there, within_s=30)
    return (await client.trigger_deliveries(name)).items


async def test_outcomes_select_which_ends_count_and_params_come_from_the_execution(
    cluster: Cluster, no_sweep: None
) -> None:
    async with cluster.worker(), cluster.client() as client:
        good, bad = await new_job(client), await new_job(client, FAILS)
        child = await new_job(client, params={"state": Param(type="string"), "code": Param()})
        mapped = {"state": "{{execution.state}}", "code": "{{execution.exit_code}}"}
        on_success = await after(client, good, child, params=mapped)
        on_failure = await after(client, bad, child, "failed", params=mapped)
        never = await after(client, bad, child, "succeeded", "cancelled", params=mapped)
        either = await after(client, bad, child, "any", params=mapped, when="execution.exit_code == 7")
        await cluster.server._subscriptions.read()
        ids = {}
        for job in (good, bad):
            ids[job] = (await client.trigger(job)).execution_id
            await client.wait(ids[job], timeout_s=30)
        (succeeded,) = await delivered(client, on_success.name)
        (failed,) = await delivered(client, on_failure.name)
        (filtered,) = await delivered(client, either.name)
        assert not (await client.trigger_deliveries(never.name)).items
        assert (succeeded.outcome, succeeded.event, succeeded.key) == ("started", "succeeded", str(ids[good]))
        assert (failed.outcome, failed.params) == ("started", {"state": "failed", "code": 1})
        assert (filtered.outcome, filtered.execution_id) == ("filtered", None)
        started = await client.wait(str(failed.execution_id), timeout_s=30)
        assert started.params == {"state": "failed", "code": 1}
        assert started.created_by == f"trigger {on_failure.name}, delivery {ids[bad]}"
        tested = await client.test_trigger(on_failure.name, wire.TriggerSample(execution_id=ids[bad]))
        assert (tested.outcome, tested.params) == ("started", {"state": "failed", "code": 1})
        assert f"it waits for trigger {on_failure.name}; last delivery" in str((await client.why_job(child)).reasons)


async def test_the_result_of_a_workflow_starts_a_workflow(cluster: Cluster, no_sweep: None) -> None:
    tag = uuid4().hex[:8]
    async with cluster.worker(), cluster.client() as client:
        for name, params in ((f"first-{tag}", {}), (f"second-{tag}", {"from_run": Param(type="string")})):
            steps = {"a": Step(task=PASSES), "b": Step(task=PASSES, needs=("a",))}
            await client.apply_workflow(WorkflowSpec(name=name, steps=steps, params=params))
        made = await after(client, f"first-{tag}", f"second-{tag}", params={"from_run": "{{execution.execution_id}}"})
        await cluster.server._subscriptions.read()
        run = await client.start_run(f"first-{tag}")
        (delivery,) = await delivered(client, made.name)
        assert (delivery.key, delivery.outcome) == (str(run.run_id), "started"), "steps are not ends of the workflow"
        assert (await client.wait(str(delivery.execution_id), timeout_s=30)).state == "succeeded"


async def test_cancelled_and_paused(cluster: Cluster) -> None:
    async with cluster.client() as client:
        parent, child = await new_job(client), await new_job(client)
        made = await after(client, parent, child, "any")
        execution = await client.trigger(parent)
        await client.cancel(execution.execution_id)
        (delivery,) = await delivered(client, made.name)
        assert (delivery.event, delivery.outcome) == ("cancelled", "started")
        await client.pause_trigger(made.name)
        await client.cancel((await client.trigger(parent)).execution_id)
        await client.resume_trigger(made.name)
        await decide_pending(cluster.database)
        assert len((await client.trigger_deliveries(made.name)).items) == 1, "ends during the pause do not count"


async def test_a_completion_cannot_start_itself(cluster: Cluster) -> None:
    async with cluster.client() as client:
        a, b, c = [await new_job(client) for _ in range(3)]
        await after(client, a, b)
        await client.add_need(c, b)
        for parent, child in ((a, a), (b, a), (c, a)):
            with pytest.raises(Invalid) as error:
                await after(client, parent, child)
            assert error.value.code == "cycle"
        with pytest.raises(Invalid, match="there is no job"):
            await after(client, "nothing", a)


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
async def test_a_killed_process_neither_loses_nor_doubles(
    database_url: str, cluster: Cluster, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The execution is settled with its delivery; the process that decides it is killed."""
    monkeypatch.setattr("mainspring.duties.service.decide_pending", _never)
    async with cluster.client() as client:
        parent, child = await new_job(client), await new_job(client)
        made = await after(client, parent, child, "cancelled")
        await client.cancel((await client.trigger(parent)).execution_id)
        (pending,) = (await client.trigger_deliveries(made.name)).items
        assert pending.outcome == "pending", "written by the transaction that ended the execution"
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", STOPS, database_url, moment)
        assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGKILL
        (found,) = (await client.trigger_deliveries(made.name)).items
        assert found.outcome == ("pending" if moment == "before the commit" else "started")
        async with Database(database_url, size=4) as other:
            await asyncio.gather(*(decide_pending(other) for _ in range(3)))
        (found,) = (await client.trigger_deliveries(made.name)).items
        assert found.outcome == "started"
        (execution,) = (await client.executions(job=child)).items
        assert execution.execution_id == found.execution_id


async def test_an_end_that_no_settling_process_noticed_is_found(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unnoticed(connection: object, *, execution_ids: object) -> int:
        return 0

    async with cluster.client() as client:
        parent, child = await new_job(client), await new_job(client)
        made = await after(client, parent, child, "cancelled")
        with monkeypatch.context() as patched:
            patched.setattr("mainspring.store.triggers.notice_ends", unnoticed)
            await client.cancel((await client.trigger(parent)).execution_id)
        await decide_pending(cluster.database)
        (found,) = await delivered(client, made.name)
        assert found.outcome == "started"
        await decide_pending(cluster.database)
        assert len((await client.executions(job=child)).items) == 1


async def test_a_completion_waits_while_its_tenant_may_start_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Suspended, then with a full queue: the delivery stays pending, and starts its execution once when it may."""
    monkeypatch.setattr("mainspring.duties.service.decide_pending", _never)
    name = f"t-{uuid4().hex[:8]}"
    async with cluster.client() as admin:
        await admin.create_tenant(wire.NewTenant(name=name))
        token = (await admin.issue_tenant_token(name, wire.NewToken(name="first", role="admin"))).token

    async def outcome_with(setting: str) -> str:
        async with cluster.database.connection() as connection:
            await connection.execute(f"UPDATE tenants SET {setting} WHERE name = $1", name)
            await decide_pending(cluster.database)
            return str(
                await connection.fetchval(
                    "SELECT d.outcome FROM trigger_deliveries d JOIN tenants t USING (tenant_id) WHERE t.name = $1",
                    name,
                )
            )

    async with AsyncClient(cluster.url, token) as own:
        parent, child = await new_job(own), await new_job(own)
        await after(own, parent, child, "cancelled")
        await own.cancel((await own.trigger(parent)).execution_id)
        assert await outcome_with("suspended_at = db_now()") == "pending"
        assert await outcome_with("suspended_at = NULL, max_queued = 0") == "pending"
        assert await outcome_with("max_queued = 1") == "started"
        assert len((await own.executions(job=child)).items) == 1


async def _never(_: Database) -> int:
    return 0
