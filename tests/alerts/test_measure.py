"""What a process writes down of its own metrics, and that the whole chain tells."""

from __future__ import annotations

import asyncio
import json

import pytest

from mainspring import wire
from mainspring.alerts import channels, rules
from mainspring.alerts.measure import RESULT_SAMPLES, ProcessMeasurements
from mainspring.domain.alert import Rule
from mainspring.domain.channel import PagerDutyTarget, WebhookTarget, new_secret
from mainspring.domain.job import JobSpec, Notify, ShellTask
from mainspring.domain.retry import RetryPolicy
from mainspring.embedded.server import EmbeddedServer
from mainspring.store import measurements
from mainspring.store.db import Database
from mainspring.telemetry import metrics
from tests.conftest import clone, started
from tests.support.http_receiver import receiving, reply
from tests.support.secret_keys import shared_vault

pytestmark = pytest.mark.anyio


async def test_figures_are_those_of_the_last_minutes(fresh: Database) -> None:
    metrics.SCHEDULING_LATENCY.observe(30.0)  # before this process was measured
    measure = ProcessMeasurements(fresh, roles=("scheduler",))
    quiet = await measure.write()
    assert (quiet["settled"], quiet["stale"]) == (0, 0) and "scheduling_p95_s" not in quiet
    for _ in range(95):
        metrics.SCHEDULING_LATENCY.observe(0.004)
    for _ in range(5):
        metrics.SCHEDULING_LATENCY.observe(0.2)
    metrics.JOBS_COMPLETED.labels("succeeded").inc(40)
    metrics.STALE_RESULTS.inc(2)
    metrics.RESULTS_PENDING.inc(7)
    try:
        busy = await measure.write()
    finally:
        metrics.RESULTS_PENDING.dec(7)
    assert (busy["settled"], busy["stale"], busy["results_pending"]) == (40, 2, 7)
    assert busy["scheduling_p95_s"] == 0.005
    metrics.SCHEDULING_LATENCY.observe(0.2)
    assert (await measure.write())["scheduling_p95_s"] == 0.25
    for _ in range(6):
        await measure.write()
    later = measure.figures()
    assert "scheduling_p95_s" not in later, "a minute without a fire"
    assert later["settled"] == 40
    for _ in range(RESULT_SAMPLES):
        await measure.write()
    later = measure.figures()
    assert later["settled"] == 0
    async with fresh.connection() as connection:
        seen = await measurements.readings(connection)
    ((name, written),) = seen.processes
    assert name.startswith("scheduler ") and written == later, "one row for a process, however often it measures"


async def test_a_failure_reaches_its_channel_by_itself(postgres: EmbeddedServer) -> None:
    """The whole way: a worker fails an execution, the settler writes, the leader hears and sends."""
    async with (
        receiving(lambda _: reply()) as server,
        started(await clone(postgres), allow_net=("127.0.0.1",)) as cluster,
        cluster.client() as client,
        cluster.worker(),
    ):
        secret = new_secret()
        await client.add_channel(wire.NewChannel(name="hook", target=WebhookTarget(server.url(), secret)))
        spec = JobSpec(
            name="breaks",
            task=ShellTask(("false",)),
            retries=RetryPolicy(max=0),
            notify=(Notify(("failed",), ("hook",)),),
        )
        await client.create_job(spec)
        assert (await client.test_channel("hook")).delivered
        server.arrived.clear()
        execution = await client.trigger("breaks")
        ended = await client.wait(execution.execution_id, timeout_s=30)
        assert ended.state == "failed"
        await asyncio.wait_for(server.arrived.wait(), 120)
        told = json.loads(server.got[-1].body)
        assert told["type"] == "job.failed" and told["data"]["execution_id"] == str(execution.execution_id)
        names = [event.event for event in (await client.events(execution.execution_id)).items]
    assert names == ["execution.created", "execution.due", "execution.queued", "execution.started", "execution.failed"]


async def test_an_alert_fires_by_itself_and_reaches_a_pager(postgres: EmbeddedServer) -> None:
    """A server that starts with a broken rule measures, judges and tells without being asked."""
    url = await clone(postgres)
    async with receiving(lambda _: reply("202 Accepted")) as server:
        async with Database(url) as database:
            pager = PagerDutyTarget("r0ut1ng", server.url())
            new = wire.NewChannel(name="pager", target=pager, events=["alert.firing", "alert.resolved"])
            await channels.create(database, shared_vault(), new, tenant=1, by="test")
            always = Rule(condition="result_lag", threshold=-1.0, severity="critical")
            await rules.put_rule(database, "always", always, tenant=1, by="test")
        async with started(url, allow_net=("127.0.0.1",)) as cluster, cluster.client() as client:
            await asyncio.wait_for(server.arrived.wait(), 120)
            (alert,) = (await client.alerts(state="firing")).items
    told = json.loads(server.got[0].body)
    assert (told["event_action"], told["payload"]["severity"]) == ("trigger", "critical")
    assert (alert.rule, told["dedup_key"]) == ("always", "mainspring:alert:always:")
