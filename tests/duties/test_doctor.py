"""The doctor's rounds on the leader and the alert rule `doctor`."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from mainspring.alerts import rules
from mainspring.alerts.evaluate import AlertEvaluator
from mainspring.duties.doctor import CHECK_TIMEOUT_S, EVERY_S, GRACE_S, DoctorRounds
from mainspring.store.db import Database
from mainspring.store.doctor import CHECKS
from mainspring.testing.clock import VirtualClock
from tests.support.alerts import TENANT, AlertBench
from tests.support.silent_bus import SilentBus

pytestmark = pytest.mark.anyio

CHECK = "needs_of_the_deleted"


class Leader:
    """A process that leads: its rounds of the doctor and its evaluation of alert rules, step by step."""

    def __init__(self, bench: AlertBench, virtual: VirtualClock, *, timeout_s: float = CHECK_TIMEOUT_S) -> None:
        self.bench = bench
        self.virtual = virtual
        self.rounds = DoctorRounds(bench.database, timeout_s=timeout_s, clock=virtual)
        self.evaluator = AlertEvaluator(
            bench.database, SilentBus(), bench.subscriptions, leads=lambda: True, doctor=self.rounds.readings
        )

    async def after(self, seconds: float) -> dict[str, str]:
        """Advance in steps of ten seconds; return the summaries of firing alerts of the rule by key."""
        for _ in range(round(seconds / 10)):
            await self.virtual.advance(seconds=10)
            await self._execute("UPDATE shards SET watermark = db_now()")
            await self.rounds.run_due()
            await self.evaluator.evaluate()
        found = await rules.list_alerts(self.bench.database, tenant=TENANT, state="firing", limit=100)
        return {alert.key: alert.summary for alert in found.items if alert.rule == "doctor"}

    async def plant(self) -> None:
        """Two jobs need a deleted job."""
        parent, *children = [await self.bench.job() for _ in range(3)]
        for child in children:
            await self._execute(
                "INSERT INTO job_needs (child_id, parent_id, tenant_id, created_by) VALUES ($1, $2, 1, 'test')",
                child,
                parent,
            )
        await self._execute("UPDATE jobs SET deleted_at = db_now() WHERE job_id = $1", parent)

    async def repair(self) -> None:
        await self._execute("DELETE FROM job_needs")

    async def _execute(self, sql: str, *values: object) -> None:
        async with self.bench.database.connection() as connection:
            await connection.execute(sql, *values)


@pytest.fixture
def bench(fresh: Database) -> AlertBench:
    return AlertBench(fresh)


async def test_a_finding_fires_an_alert_that_resolves_when_it_is_gone(bench: AlertBench, virtual: VirtualClock) -> None:
    leader = Leader(bench, virtual)
    assert await leader.after(120) == {}
    await leader.plant()
    assert await leader.after(90) == {}, "one round alone fires nothing"
    firing = await leader.after(70)
    assert set(firing) == {CHECK}
    assert firing[CHECK].startswith(f"violated: {CHECKS[CHECK]}: job-") and "; job-" in firing[CHECK]
    await leader.repair()
    assert await leader.after(70) == {}


async def test_the_alert_counts_other_tenants_and_names_nothing_of_them(
    bench: AlertBench, virtual: VirtualClock
) -> None:
    leader = Leader(bench, virtual)
    await leader.plant()
    async with bench.database.connection() as connection:
        other = await connection.fetchval("INSERT INTO tenants (name) VALUES ('other') RETURNING tenant_id")
        await connection.execute("UPDATE jobs SET tenant_id = $1, name = 'theirs-' || name", other)
        await connection.execute("UPDATE job_needs SET tenant_id = $1", other)
    firing = await leader.after(160)
    assert firing[CHECK] == f"violated: {CHECKS[CHECK]}: see mainspring doctor"
    await leader.plant()
    summary = (await leader.after(70))[CHECK]
    assert "theirs" not in summary and "job-" in summary and "and 2 more" in summary


async def test_a_new_leader_keeps_the_alert_until_it_has_run_the_checks(
    bench: AlertBench, virtual: VirtualClock
) -> None:
    first = Leader(bench, virtual)
    await first.plant()
    assert set(await first.after(160)) == {CHECK}
    second = Leader(bench, virtual)
    await second.evaluator.evaluate()
    assert set(await second.after(0)) == {CHECK}
    await second.repair()
    assert await second.after(10) == {}


async def test_a_round_runs_once_a_minute_and_its_findings_expire(bench: AlertBench, virtual: VirtualClock) -> None:
    rounds = DoctorRounds(bench.database, clock=virtual)
    assert rounds.readings() is None
    assert await rounds.run_due() == EVERY_S
    assert rounds.readings() == []
    await virtual.advance(seconds=EVERY_S - 1)
    assert await rounds.run_due() == 1
    await virtual.advance(seconds=1 + GRACE_S)
    assert rounds.readings() is None, "a process that has not looked for three minutes does not know"


async def test_a_slow_check_is_cancelled_and_its_findings_stay(bench: AlertBench, virtual: VirtualClock) -> None:
    leader = Leader(bench, virtual, timeout_s=0.5)
    await leader.plant()
    assert set(await leader.after(160)) == {CHECK}
    async with bench.database.transaction() as connection:
        await connection.execute("LOCK TABLE job_needs")
        await virtual.advance(seconds=60)
        with capture_logs() as logged:
            await leader.rounds.run_due()
    assert {"event": "doctor.timeout", "check": CHECKS[CHECK], "timeout_s": 0.5, "log_level": "warning"} in logged
    assert CHECK in {reading.key for reading in leader.rounds.readings() or ()}
    async with bench.database.connection() as connection:
        assert await connection.fetchval("SHOW statement_timeout") == "0", "the limit ends with its transaction"
