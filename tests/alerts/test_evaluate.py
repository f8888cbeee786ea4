"""Every built-in rule, provoked and resolved; silences and maintenance windows."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from mainspring import clock, wire
from mainspring.alerts import rules
from mainspring.alerts.evaluate import INTERVAL_S
from mainspring.alerts.measure import ProcessMeasurements
from mainspring.domain.alert import Rule
from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import Invalid
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import jobs
from mainspring.intake import runs as run_actions
from mainspring.store import measurements
from mainspring.store import runs as store_runs
from mainspring.store.queue_samples import queue_depth_samples
from mainspring.telemetry import metrics
from mainspring.testing.clock import VirtualClock
from tests.support import runs
from tests.support.alerts import TENANT, AlertBench, body_of
from tests.support.http_receiver import receiving, reply
from tests.support.scheduling import add, ledger, scheduler_on, step

pytestmark = pytest.mark.anyio


class Rig:
    """A database that is made to look ill."""

    def __init__(self, bench: AlertBench, virtual: VirtualClock) -> None:
        self.bench = bench
        self.virtual = virtual
        self.process = uuid4()

    async def look(self, **by: float) -> None:
        if by:
            await self.virtual.advance(**by)
        await self.execute("UPDATE schedulers SET seen_at = db_now()")
        await self.bench.evaluator.evaluate()

    async def alerts(self, state: str | None = "firing") -> dict[str, wire.Alert]:
        found = await rules.list_alerts(self.bench.database, tenant=TENANT, state=state, limit=500)
        return {alert.rule: alert for alert in found.items}

    async def fires(self) -> set[str]:
        return set(await self.alerts())

    async def execute(self, sql: str, *values: Any) -> None:
        async with self.bench.database.connection() as connection:
            await connection.execute(sql, *values)

    async def process_says(self, **measured: float) -> None:
        async with self.bench.database.connection() as connection:
            await measurements.write_measurement(
                connection, process_id=self.process, name="scheduler here:1", figures=measured
            )

    async def queue(self, queue: str, n: int) -> None:
        """So many executions wait in a queue."""
        await self.execute(
            "INSERT INTO lines (tenant_id, queue, demand) VALUES (1, $1, 'test') ON CONFLICT DO NOTHING", queue
        )
        await self.execute("DELETE FROM executions WHERE queue = $1", queue)
        await self.execute(
            "INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, state, trigger, queue,"
            " rank, fire_at, due_at, queued_at, line_id) SELECT gen_random_uuid(), gen_random_uuid(), 1, 1, 0, 5,"
            " 'queued', 'fire', $1, n, db_now(), db_now(), db_now(),"
            " (SELECT line_id FROM lines WHERE queue = $1 AND demand = 'test') FROM generate_series(1, $2::int) n",
            queue,
            n,
        )

    async def history(self, job: UUID, n: int, **values: Any) -> None:
        """So many executions of a job ended, a second apart, up to now."""
        row = {"state": "succeeded", "duration_ms": 100, "reason": None, "late_s": 0.0} | values
        await self.execute(
            "INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue,"
            " fire_at, due_at, started_at, finished_at, duration_ms, reason)"
            " SELECT execution_id(lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0'), $1,"
            " gen_random_uuid()::text), $1, 1,"
            " 1, 5, CASE WHEN $3 = 'skipped' THEN 0 ELSE 1 END, $3, 'fire', 'short',"
            " at, at, at, at + make_interval(secs => $6), $4, $5"
            " FROM (SELECT db_now() - make_interval(secs => $2::int - n + $6) AS at"
            " FROM generate_series(1, $2::int) n) t",
            job,
            n,
            row["state"],
            row["duration_ms"],
            row["reason"],
            row["late_s"],
        )

    async def job(self, name: str = "job", **spec: Any) -> UUID:
        return await jobs.create(
            self.bench.database, JobSpec(name=name, task=NoopTask(), **spec), tenant=TENANT, by="test"
        )


@pytest.fixture
async def rig(bench: AlertBench, virtual: VirtualClock) -> Rig:
    rig = Rig(bench, virtual)
    # A scheduler that lives, without a process.
    await rig.execute(
        "INSERT INTO schedulers (scheduler_id, name, host, version, lease_expires_at, watched)"
        " VALUES ($1, 'here', 'h', '1', db_now() + interval '1 year', false)",
        rig.process,
    )
    await rig.execute("UPDATE shards SET owner = $1, lease_expires_at = db_now() + interval '1 year'", rig.process)
    await rig.look()
    assert await rig.fires() == set()
    return rig


@pytest.mark.requirement(122)
async def test_dead_letters(rig: Rig) -> None:
    insert = (
        "INSERT INTO dead_letters (dead_letter_id, tenant_id, job_id, version, ended_as, trigger, queue, fingerprint,"
        " fire_at, created_at, attempts) SELECT gen_random_uuid(), 1, gen_random_uuid(), 1, 'failed', 'fire', 'short',"
        " 'x', db_now(), db_now(), '[]' FROM generate_series(1, $1::int)"
    )
    await rig.execute(insert, 99)
    await rig.look(seconds=10)
    assert await rig.fires() == set()
    await rig.execute(insert, 1)
    await rig.look(seconds=10)
    assert await rig.fires() == {"dead_letters"}
    await rig.execute(insert, 400)
    await rig.look(seconds=10)
    firing = await rig.alerts()
    assert set(firing) == {"dead_letters", "dead_letters_critical"}
    assert (firing["dead_letters_critical"].severity, firing["dead_letters"].value) == ("critical", 500)
    await rig.execute("UPDATE dead_letters SET state = 'superseded', closed_at = db_now()")
    await rig.look(seconds=10)
    assert await rig.fires() == set()
    assert set(await rig.alerts("resolved")) == {"dead_letters", "dead_letters_critical"}


@pytest.mark.requirement(122)
async def test_the_heartbeat_of_a_shard(rig: Rig) -> None:
    await rig.virtual.advance(seconds=5)
    await rig.bench.evaluator.evaluate()
    assert await rig.fires() == set()
    await rig.virtual.advance(seconds=1)
    await rig.bench.evaluator.evaluate()
    firing = await rig.alerts()
    assert firing["shard_heartbeat_lost"].severity == "critical"
    assert "64 shards" in firing["shard_heartbeat_lost"].summary and "here" in firing["shard_heartbeat_lost"].summary
    await rig.look()
    assert await rig.fires() == set()


@pytest.mark.requirement(122)
@pytest.mark.parametrize(
    ("rule", "fine", "ill"),
    [
        ("shard_too_large", {"shard_jobs": 500_000}, {"shard_jobs": 500_001}),
        ("scheduling_slow", {"scheduling_p95_s": 0.1}, {"scheduling_p95_s": 0.101}),
        ("clock_skewed", {"clock_skew_s": -1.0}, {"clock_skew_s": -1.1}),
        ("result_lag", {"results_pending": 5_000}, {"results_pending": 5_001}),
        ("result_lag", {"results_streamed": 5_000}, {"results_pending": 1, "results_streamed": 5_000}),
        ("stale_results", {"settled": 9_900, "stale": 100}, {"settled": 9_890, "stale": 110}),
    ],
)
async def test_what_only_a_process_knows(rig: Rig, rule: str, fine: dict[str, float], ill: dict[str, float]) -> None:
    await rig.process_says(**fine)
    await rig.look()
    assert await rig.fires() == set()
    await rig.process_says(**ill)
    await rig.look()
    assert await rig.fires() == {rule}
    await rig.process_says(**fine)
    await rig.look()
    assert await rig.fires() == set()
    await rig.process_says(**ill)
    await rig.look(seconds=29)
    assert await rig.fires() == {rule}
    await rig.look(seconds=2)
    assert await rig.fires() == set(), "a process that no longer measures says nothing"


class Wrong:
    """The module `time` of a machine whose wall clock is off."""

    def __init__(self, ahead_s: float) -> None:
        self.ahead_s = ahead_s

    def time(self) -> float:
        return time.time() + self.ahead_s

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@pytest.mark.fault("F15")
@pytest.mark.requirement(17)
@pytest.mark.parametrize("off_s", [-7200.0, 5.0])
async def test_a_clock_that_is_off_is_measured_alerted_on_and_harmless(
    rig: Rig, virtual: VirtualClock, monkeypatch: pytest.MonkeyPatch, off_s: float
) -> None:
    """Fires go from a machine whose clock is right to one whose clock is not and back; none is lost, none doubled."""
    database = rig.bench.database
    await rig.execute("UPDATE shards SET owner = NULL, lease_expires_at = NULL")
    await rig.execute("DELETE FROM schedulers")
    await add(database, "minutely", overlap="allow")
    metrics.ENGINE_UP.clear()  # other tests of this process may have left an engine that refused them
    measure = ProcessMeasurements(database, roles=("scheduler",))
    for wrong in (False, True, False):
        right_s = virtual.now.timestamp() - time.time()
        monkeypatch.setattr(clock, "time", Wrong(right_s + off_s if wrong else right_s))
        scheduler = await scheduler_on(database)
        assert scheduler.shards == list(range(64))
        skew_s = (await measure.write())["clock_skew_s"]
        assert skew_s == pytest.approx(off_s if wrong else 0.0, abs=0.9)
        await rig.bench.evaluator.evaluate()
        assert await rig.fires() == ({"clock_skewed"} if wrong else set())
        await virtual.advance(seconds=60)
        await step(scheduler)
        await scheduler.drain()
    assert [at for at, _, _ in await ledger(database, "minutely")] == [60, 120, 180]


async def test_an_engine_that_a_process_has_lost(rig: Rig) -> None:
    await rig.process_says(**{"engine:bus:redis": 1.0, "engine:cache:redis": 1.0})
    await rig.look()
    assert await rig.fires() == set()
    for _ in range(4):
        await rig.process_says(**{"engine:bus:redis": 1.0, "engine:cache:redis": 0.0})
        await rig.look(seconds=15)
    assert await rig.fires() == {"engine_lost"}
    alert = (await rig.alerts())["engine_lost"]
    assert alert.value == 1 and "has no connection to redis (cache): each api process uses its own" in alert.summary
    await rig.process_says(**{"engine:bus:redis": 1.0, "engine:cache:redis": 1.0})
    await rig.look()
    assert await rig.fires() == set()


async def test_false_locks_that_schedulers_ignored(rig: Rig) -> None:
    await rig.process_says(false_fire_locks=0.0)
    await rig.look()
    assert await rig.fires() == set()
    await rig.process_says(false_fire_locks=3.0)
    await rig.look()
    assert await rig.fires() == {"false_fire_locks"}
    assert "3 false fire locks were ignored" in (await rig.alerts())["false_fire_locks"].summary


@pytest.mark.requirement(122)
@pytest.mark.parametrize(("queue", "most"), [("short", 5_000), ("long", 1_000)])
async def test_a_queue_that_is_too_long(rig: Rig, queue: str, most: int) -> None:
    await rig.queue(queue, most)
    await rig.look(seconds=10)
    assert await rig.fires() == set()
    await rig.queue(queue, most + 1)
    await rig.look(seconds=10)
    firing = await rig.alerts()
    assert set(firing) == {f"queue_lag_{queue}"} and firing[f"queue_lag_{queue}"].key == queue
    await rig.queue(queue, 0)
    await rig.look(seconds=10)
    assert await rig.fires() == set()


@pytest.mark.requirement(123)
async def test_a_queue_that_grows_for_a_minute(rig: Rig) -> None:
    for n in range(6):
        await rig.queue("short", 100 + n)
        await rig.look(seconds=10)
        assert await rig.fires() == set()
    await rig.queue("short", 106)
    await rig.look(seconds=10)
    firing = await rig.alerts()
    assert set(firing) == {"queue_growing"} and "from 100 to 106" in firing["queue_growing"].summary
    await rig.look(seconds=10)
    assert await rig.fires() == set(), "it stands still"


@pytest.mark.requirement(123)
async def test_the_rate_of_success(rig: Rig) -> None:
    job = await rig.job()
    await rig.history(job, 99)
    await rig.history(job, 1, state="failed")
    await rig.look(seconds=10)
    assert await rig.fires() == set(), "99 of 100 is enough"
    await rig.history(job, 1, state="timed_out")
    await rig.look(seconds=1)
    firing = await rig.alerts()
    assert set(firing) == {"success_rate_low"} and "98.0% of the latest 101" in firing["success_rate_low"].summary
    await rig.look(hours=1)
    assert await rig.fires() == set()


async def test_fires_within_their_promise(rig: Rig) -> None:
    for name in ("one", "two"):
        await rig.history(await rig.job(name, schedule=ScheduleSpec(every=86400), finish_by="10m"), 10)
    await rig.look(seconds=1)
    assert await rig.fires() == set()
    late = await rig.job("late", schedule=ScheduleSpec(every=86400), finish_by="10m")
    await rig.history(late, 2, late_s=601.0)
    await rig.look(seconds=1)
    firing = await rig.alerts()
    assert set(firing) == {"sla_low"} and "90.9% of the last hour's 22" in firing["sla_low"].summary
    await rig.look(hours=2)
    assert await rig.fires() == set()


@pytest.mark.requirement(123)
@pytest.mark.parametrize(
    ("durations", "broken"),
    [
        ([(180, 100), (20, 149)], set()),
        ([(180, 100), (20, 160)], {"duration_p50_regression"}),
        ([(180, 100), (18, 100), (2, 250)], {"duration_p95_regression"}),
        ([(180, 100), (19, 100), (1, 900)], {"duration_p99_regression"}),
        ([(180, 1), (20, 9)], set()),
        ([(20, 100), (20, 900)], set()),
    ],
    ids=["a little", "p50", "p95", "p99", "below what can be measured", "too few to compare with"],
)
async def test_durations_that_regress(rig: Rig, durations: list[tuple[int, int]], broken: set[str]) -> None:
    job = await rig.job()
    for n, ms in durations:
        await rig.virtual.advance(seconds=n)
        await rig.history(job, n, duration_ms=ms)
    await rig.look(seconds=60)
    assert {rule for rule in await rig.fires() if rule.startswith("duration_")} >= broken
    if not broken:
        assert not any(rule.startswith("duration_") for rule in await rig.fires())
    else:
        assert all(alert.key == "job" for alert in (await rig.alerts()).values())
    await rig.virtual.advance(seconds=200)
    await rig.history(job, 200, duration_ms=100)
    await rig.look(seconds=60)
    assert await rig.fires() == set()


async def test_what_did_not_start_in_time(rig: Rig) -> None:
    job = await rig.job(start_by="1m")
    await rig.history(job, 1, state="skipped", reason="overlap")
    await rig.look(seconds=10)
    assert await rig.fires() == set()
    await rig.history(job, 2, state="skipped", reason="start_by")
    await rig.look(seconds=1)
    firing = await rig.alerts()
    assert set(firing) == {"start_by_missed"} and firing["start_by_missed"].value == 2
    await rig.look(minutes=10)
    assert await rig.fires() == set()


@pytest.mark.parametrize("deadline", ["finish_by", "max_gap"])
async def test_a_job_that_does_not_succeed_when_it_should(rig: Rig, deadline: str) -> None:
    job = await rig.job(schedule=ScheduleSpec(every=3600), **{deadline: "90m"})
    await rig.look(minutes=89)
    assert await rig.fires() == set()
    await rig.look(minutes=70)
    firing = await rig.alerts()
    assert set(firing) == {f"{deadline}_missed"}
    assert firing[f"{deadline}_missed"].key == "job"
    await rig.history(job, 1)
    await rig.look(minutes=1)
    assert await rig.fires() == set()


@pytest.mark.requirement(112)
async def test_a_run_that_has_not_succeeded_within_its_sla(rig: Rig) -> None:
    bench = runs.RunBench(rig.bench.database)
    run = await bench.begin(
        "nightly", {"one": {}, "sign": {"approval": {"self_approval": True}, "needs": ["one"]}}, sla="2h"
    )
    await bench.work()
    await rig.look(minutes=119)
    assert await rig.fires() == set()
    await rig.look(minutes=1)
    firing = await rig.alerts()
    assert set(firing) == {"run_sla_missed"}, "it has not ended, and is told at once"
    assert (firing["run_sla_missed"].key, firing["run_sla_missed"].value) == ("nightly", 1)
    await run_actions.cancel(bench.runs, run.run_id, tenant=TENANT, by="test")
    await rig.look(minutes=2)
    assert await rig.fires() == set(), "what has ended is late no more"


@pytest.mark.requirement(112, 122)
async def test_the_share_of_runs_within_their_sla(rig: Rig) -> None:
    bench = runs.RunBench(rig.bench.database)
    await bench.apply("flow", {"one": {}}, sla="10m")
    for _ in range(20):
        await bench.start("flow")
    await bench.work()
    failed = await bench.start("flow")
    await bench.work(lambda _: "failed")
    assert (await bench.get(failed)).state == "failed"
    await rig.look(minutes=10)
    assert await rig.fires() - {"success_rate_low"} == {"run_sla_missed"}, "20 of 21 is enough, yet one missed it"
    await bench.start("flow")
    await bench.work(lambda _: "failed")
    await rig.look(minutes=10)
    firing = await rig.alerts()
    assert "90.9% of the last day's 22 runs" in firing["run_sla_low"].summary
    async with rig.bench.database.connection() as connection:
        assert await store_runs.sla_ratios(connection, tenant=TENANT) == {"flow": 20 / 22}
        assert await store_runs.sla_ratios(connection, tenant=2) == {}
    await rig.look(days=1)
    assert await rig.fires() == set()


async def test_a_channel_that_fails(rig: Rig) -> None:
    async with receiving(lambda _: reply("500 Oops")) as server:
        await rig.bench.webhook(server, "execution.failed")
        await rig.bench.ended("failed")
        await rig.bench.deliver()
    await rig.look(seconds=300)
    assert await rig.fires() == set()
    await rig.look(seconds=1)
    firing = await rig.alerts()
    assert set(firing) == {"channel_failing"} and firing["channel_failing"].key == "hook"
    await rig.execute("UPDATE channels SET failing_since = NULL")
    await rig.look(seconds=1)
    assert await rig.fires() == set()


async def test_messages_that_wait_for_a_trigger(rig: Rig) -> None:
    await rig.execute(
        "INSERT INTO triggers (trigger_id, tenant_id, name, kind, job, spec, created_by)"
        " VALUES ('00000000-0000-0000-0000-000000000001', 1, 'orders', 'topic', 'ship', '{}', 'test')"
    )
    await rig.execute(
        "INSERT INTO trigger_watches (trigger_id, tenant_id, lag)"
        " VALUES ('00000000-0000-0000-0000-000000000001', 1, 10001)"
    )
    await rig.look()
    await rig.look(seconds=61)
    firing = await rig.alerts()
    assert set(firing) == {"topic_lag"} and firing["topic_lag"].key == "orders"
    await rig.execute("UPDATE trigger_watches SET lag = 10000")
    await rig.look(seconds=1)
    assert await rig.fires() == set()


# The life of an alert -------------------------------------------------------------------------------


async def rule(rig: Rig, name: str, **values: Any) -> None:
    written = Rule(**{"condition": "result_lag", "threshold": 10.0, **values})
    await rules.put_rule(rig.bench.database, name, written, tenant=TENANT, by="test")
    rig.bench.evaluator.edited()


@pytest.mark.requirement(121)
async def test_a_rule_fires_after_its_for_and_is_told_once_and_resolved_once(rig: Rig) -> None:
    assert INTERVAL_S == 10
    await rule(rig, "mine", for_s=30.0, severity="critical")
    async with receiving(lambda _: reply()) as server:
        await rig.bench.pagerduty(server, "alert.firing", "alert.resolved")
        await rig.process_says(results_pending=11)
        await rig.look()
        assert set(await rig.alerts("pending")) == {"mine"}
        await rig.process_says(results_pending=10)
        await rig.look(seconds=10)
        assert await rig.alerts(None) == {}, "what holds again before it fires was nothing"
        for _ in range(6):
            await rig.process_says(results_pending=11)
            await rig.look(seconds=10)
        assert set(await rig.alerts("firing")) == {"mine"}
        await rig.process_says(results_pending=10)
        await rig.look(seconds=10)
        await rig.look(seconds=10)
        await rig.bench.deliver()
    opened, closed = map(body_of, server.got)
    assert (opened["event_action"], opened["payload"]["severity"]) == ("trigger", "critical")
    assert (closed["event_action"], closed["dedup_key"]) == ("resolve", opened["dedup_key"])
    assert opened["dedup_key"] == "mainspring:alert:mine:"


async def test_alerts_of_one_look_are_listed_page_by_page(rig: Rig) -> None:
    for n in range(5):
        await rule(rig, f"mine-{n}")
    await rig.process_says(results_pending=11)
    await rig.look()
    seen, cursor = list[str](), None
    while True:
        page = await rules.list_alerts(rig.bench.database, tenant=TENANT, limit=2, cursor=cursor)
        seen += [alert.rule for alert in page.items]
        if (cursor := page.next_cursor) is None:
            break
    assert sorted(seen) == [f"mine-{n}" for n in range(5)]


async def test_two_leaders_for_a_moment_tell_once(rig: Rig) -> None:
    from mainspring.alerts.evaluate import AlertEvaluator
    from tests.support.silent_bus import SilentBus

    async with receiving(lambda _: reply()) as server:
        await rig.bench.slack(server, "alert.firing", "alert.resolved")
        other = AlertEvaluator(rig.bench.database, SilentBus(), rig.bench.subscriptions, leads=lambda: True)
        await rig.process_says(results_pending=6_000)
        for evaluator in (rig.bench.evaluator, other, rig.bench.evaluator):
            await evaluator.evaluate()
        await rig.process_says()
        for evaluator in (other, rig.bench.evaluator):
            await evaluator.evaluate()
    assert [d.event for d in await rig.bench.deliveries()] == ["alert.firing", "alert.resolved"]


async def test_a_rule_names_its_channels_and_can_be_switched_off(rig: Rig) -> None:
    async with receiving(lambda _: reply()) as server:
        await rig.bench.slack(server, "alert.firing", name="everything")
        await rig.bench.slack(server, name="mine-only")
        await rule(rig, "mine", channels=("mine-only",))
        await rule(rig, "result_lag", threshold=1e9, enabled=False)
        await rig.process_says(results_pending=6_000)
        await rig.look()
    assert [(d.channel, d.data["rule"]) for d in await rig.bench.deliveries()] == [("mine-only", "mine")]
    assert await rig.fires() == {"mine"}
    await rules.delete_rule(rig.bench.database, "result_lag", tenant=TENANT, by="test")
    rig.bench.evaluator.edited()
    await rig.look()
    assert await rig.fires() == {"mine", "result_lag"}, "as it was built in"


async def test_who_was_told_by_a_rule_that_is_no_more_hears_the_end(rig: Rig) -> None:
    async with receiving(lambda _: reply()) as server:
        await rig.bench.slack(server, name="mine-only")
        await rule(rig, "mine", channels=("mine-only",))
        await rig.process_says(results_pending=11)
        await rig.look()
        await rules.delete_rule(rig.bench.database, "mine", tenant=TENANT, by="test")
        rig.bench.evaluator.edited()
        await rig.look()
    assert [(d.channel, d.event) for d in await rig.bench.deliveries()] == [
        ("mine-only", "alert.firing"),
        ("mine-only", "alert.resolved"),
    ]


async def test_a_silence_silences_until_its_end(rig: Rig) -> None:
    async with receiving(lambda _: reply()) as server:
        await rig.bench.slack(server, "alert.firing", "alert.resolved")
        until = rig.virtual.now + timedelta(minutes=5)
        await rig.bench.silence({"rule": "result_*"}, end_at=until, reason="known")
        await rig.process_says(results_pending=6_000)
        await rig.look()
        assert (await rig.alerts())["result_lag"].told_at is None
        assert await rig.bench.deliveries() == []
        await rig.process_says(results_pending=0)
        await rig.look(seconds=10)
        assert await rig.bench.deliveries() == [], "who was not told that it fires need not hear its end"
        await rig.process_says(results_pending=6_000, shard_jobs=600_000)
        await rig.look(seconds=10)
        assert [d.data["rule"] for d in await rig.bench.deliveries()] == ["shard_too_large"]
        await rig.virtual.set(until)
        await rig.process_says(results_pending=6_000, shard_jobs=600_000)
        await rig.look()
        assert [d.data["rule"] for d in await rig.bench.deliveries()] == ["shard_too_large", "result_lag"]


async def test_a_maintenance_window_holds_back_each_time_it_comes(rig: Rig) -> None:
    async with receiving(lambda _: reply()) as server:
        await rig.bench.slack(server, "alert.firing")
        hourly = ScheduleSpec(cron="0 0 * * * *")
        await rig.bench.silence({"rule": "*"}, schedule=hourly, lasts="10m", reason="backup")

        async def told_at(minute: int) -> int:
            await rig.process_says(results_pending=0)
            await rig.look()
            before = len(await rig.bench.deliveries())
            await rig.virtual.set(rig.virtual.now.replace(minute=minute) + timedelta(hours=1))
            await rig.process_says(results_pending=6_000)
            await rig.look()
            return len(await rig.bench.deliveries()) - before

        assert [await told_at(minute) for minute in (5, 9, 10, 0, 59)] == [0, 0, 1, 0, 1]


async def test_a_window_that_begins_later_holds_nothing_yet_and_a_deleted_one_lets_go(rig: Rig) -> None:
    async with receiving(lambda _: reply()) as server:
        await rig.bench.slack(server, "alert.firing")
        start = rig.virtual.now + timedelta(minutes=1)
        made = await rig.bench.silence({"severity": "warning"}, start_at=start, end_at=start + timedelta(hours=1))
        await rig.process_says(results_pending=6_000)
        await rig.look()
        assert len(await rig.bench.deliveries()) == 1
        await rig.virtual.set(start)
        await rig.process_says(results_pending=6_000, shard_jobs=600_000)
        await rig.look()
        assert len(await rig.bench.deliveries()) == 1
        from mainspring.alerts import silences

        await silences.delete(rig.bench.database, str(made.silence_id), tenant=TENANT, by="test")
        rig.bench.evaluator.edited()
        await rig.look()
        assert len(await rig.bench.deliveries()) == 2


@pytest.mark.parametrize(
    ("values", "pointer"),
    [
        ({"condition": "queue_dept", "threshold": 1.0}, "/condition"),
        ({"condition": "queue_depth", "threshold": float("nan")}, "/threshold"),
        ({"condition": "queue_depth", "threshold": 1.0, "channels": ("nobody",)}, "/channels/0"),
    ],
)
async def test_a_rule_that_can_not_be_is_refused(rig: Rig, values: dict[str, Any], pointer: str) -> None:
    with pytest.raises(Invalid) as refused:
        await rules.put_rule(rig.bench.database, "mine", Rule(**values), tenant=TENANT, by="test")
    assert refused.value.problems[0].pointer == pointer and refused.value.problems[0].hint


@pytest.mark.parametrize(
    ("values", "pointer"),
    [
        ({"matchers": {}}, "/matchers"),
        ({"matchers": {"jobs": "x"}}, "/matchers/jobs"),
        ({"matchers": {"job": "x"}, "end_at": None}, "/"),
        ({"matchers": {"job": "x"}, "lasts": "1h"}, "/lasts"),
        ({"matchers": {"job": "x"}, "end_at": None, "schedule": ScheduleSpec(cron="0 2 * * *")}, "/lasts"),
    ],
)
async def test_a_silence_that_can_not_be_is_refused(rig: Rig, values: dict[str, Any], pointer: str) -> None:
    until = rig.virtual.now + timedelta(seconds=parse_duration("1h"))
    with pytest.raises(Invalid) as refused:
        await rig.bench.silence(**{"end_at": until, **values})
    assert refused.value.problems[0].pointer == pointer and refused.value.problems[0].hint


async def test_the_depth_of_the_queues_is_kept_once_a_minute(rig: Rig) -> None:
    await rig.execute("DELETE FROM queue_sample_times")
    await rig.queue("short", 3)
    await rig.look(minutes=1)
    await rig.queue("short", 5)
    await rig.look()  # in the same minute
    await rig.queue("short", 9)
    await rig.look(minutes=1)
    await rig.queue("short", 0)
    await rig.look(minutes=1)
    async with rig.bench.database.connection() as connection:
        found = await queue_depth_samples(connection, tenant=TENANT, last_s=600.0, step_s=60.0, most=5)
    assert [s.depth for s in found if s.queue == "short"] == [3, 9]
    assert sum(s.queue is None for s in found) == 3
