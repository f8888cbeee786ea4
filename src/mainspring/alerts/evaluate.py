"""Evaluates alert rules: every ten seconds the leader takes readings and notifies of alerts that fire or resolve."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal
from uuid import UUID, uuid5

import structlog

from mainspring import ports
from mainspring.alerts.readings import ReadingHistory, take_readings
from mainspring.clock import Clock, SystemClock
from mainspring.domain.alert import (
    BUILT_IN,
    DOCTOR,
    AlertChanges,
    OpenAlert,
    Reading,
    Rule,
    judge,
    labels_of,
    rules_of,
)
from mainspring.domain.silence import Silence, silenced_until
from mainspring.ids import new_id
from mainspring.service import Loops, Service
from mainspring.store import alerts, outbox, silences
from mainspring.store.alerts import AlertRow
from mainspring.store.db import Connection, Database
from mainspring.store.queue_samples import write_queue_samples
from mainspring.store.subscriptions import Subscriptions

log = structlog.get_logger()

INTERVAL_S = 10.0
STAND_BY_S = 1.0
MAX_JOBS = 2_000
"""Jobs with a `late` or `missed` notification checked per evaluation; with more, they take turns."""
CLEANUP_EVERY = 360
"""Evaluations."""
SAMPLE_MS = 60_000
"""How often the depth of the queues is kept for the chart."""
REREAD_EVERY = 6
"""Evaluations between two reads of all rules and silences, in case a hint was lost."""
DEADLINE_REST = 10
"""After deadlines are evaluated, they rest for this many times the time that took."""
JOB_CONDITIONS = ("finish_by", "max_gap", "run_sla")
"""Conditions of one job: their alerts also go to the channels of the job's `notify`."""
_ZERO = UUID(int=0)


class AlertEvaluator(Service):
    """The evaluation loop of the leader; `evaluate` is one step of it."""

    def __init__(
        self,
        database: Database,
        bus: ports.Bus,
        subscriptions: Subscriptions,
        *,
        leads: Callable[[], bool],
        doctor: Callable[[], Sequence[Reading] | None] = lambda: None,
        every_s: float = INTERVAL_S,
        clock: Clock | None = None,
    ) -> None:
        self._database = database
        self._subscriptions = subscriptions
        self._leads = leads
        self._doctor = doctor
        self._every_s = every_s
        self._clock = clock or SystemClock()
        self._history = ReadingHistory()
        self._rules: dict[int, dict[str, Rule]] = {}
        self._silences: list[Silence] = []
        self._edited = True
        self._cursors = {"late": _ZERO, "missed": _ZERO}
        self._evaluations = 0
        self._sampled_ms = 0
        self._loops = Loops("alerts")
        bus.subscribe(ports.CHANNELS, lambda _: self.edited(), on_gap=self.edited)

    def edited(self) -> None:
        self._edited = True

    async def start(self) -> None:
        self._loops.forever("evaluate", self._step)

    async def stop(self) -> None:
        await self._loops.stop()

    async def _step(self) -> None:
        if not self._leads():
            self._history = ReadingHistory()
            await asyncio.sleep(STAND_BY_S)
            return
        await self.evaluate()
        await asyncio.sleep(self._every_s)

    async def evaluate(self) -> None:
        """Evaluate all rules once. Losing leadership midway is harmless: writes check state, and ids are derived."""
        async with self._database.connection() as connection:
            await self._read_edits(connection)
            started = self._clock.monotonic()
            now_ms, readings = await take_readings(connection, self._history)
            self._history.deadlines_at = now_ms + round((self._clock.monotonic() - started) * 1000 * DEADLINE_REST)
            known = await alerts.open_alerts(connection)
            await self._sample_queues(connection, readings, now_ms)
        examined = self._doctor()
        if examined is None:  # a new leader has not run the checks yet: alerts of the one before stay as they are
            known = [alert for alert in known if not self._is_of_doctor(alert)]
        changes = judge(self._rules, [*readings, *(examined or ())], known, now_ms=now_ms)
        await self.apply(changes, now_ms=now_ms)
        await self._notify_jobs()
        self._evaluations += 1
        if self._evaluations % CLEANUP_EVERY == 0:
            async with self._database.connection() as connection:
                await alerts.forget_alerts(connection, limit=10_000)

    def _is_of_doctor(self, alert: OpenAlert) -> bool:
        rule = self._rules.get(alert.tenant, BUILT_IN).get(alert.rule)
        return rule is not None and rule.enabled and rule.condition == DOCTOR

    async def _sample_queues(self, connection: Connection, readings: Sequence[Reading], now_ms: int) -> None:
        """Keep the depths of the queues, which were just read for the rules, once a minute."""
        if now_ms // SAMPLE_MS == self._sampled_ms // SAMPLE_MS:
            return
        depths = [(r.tenant, r.key, int(r.value)) for r in readings if r.condition == "queue_depth"]
        await write_queue_samples(connection, now_ms=now_ms, depths=depths)
        self._sampled_ms = now_ms

    async def apply(self, changes: AlertChanges, *, now_ms: int) -> None:
        """Write the changed alerts and their notifications in one transaction."""
        if not changes.broken and not changes.over:
            return
        async with self._database.transaction() as connection:
            if changes.broken:
                ids = [new_id(now_ms) for _ in changes.broken]
                for row in await alerts.raise_alerts(connection, ids=ids, broken=changes.broken):
                    await self._notify_firing(connection, row, now_ms)
            if changes.over:
                await alerts.drop_pending(connection, over=changes.over)
                for row in await alerts.resolve_alerts(connection, over=changes.over):
                    await self._notify_resolved(connection, row)

    async def _notify_firing(self, connection: Connection, row: AlertRow, now_ms: int) -> None:
        """Notify once. During a silence not yet: if the alert still fires at its end, it is sent then."""
        if row.state != "firing" or row.told_at is not None:
            return
        labels = labels_of(row.rule, self._rule(row), row.key)
        if silenced_until(self._silences, labels, tenant=row.tenant, now_ms=now_ms) is not None:
            return
        if await alerts.mark_notified(connection, alert_id=row.alert_id):
            await self._notify(connection, row, "alert.firing")
            log.warning("alert.firing", rule=row.rule, key=row.key, severity=row.severity, summary=row.summary)

    async def _notify_resolved(self, connection: Connection, row: AlertRow) -> None:
        """Notify of the end only if the firing was sent."""
        if row.told_at is not None:
            await self._notify(connection, row, "alert.resolved")
            log.info("alert.resolved", rule=row.rule, key=row.key)

    async def _notify(self, connection: Connection, row: AlertRow, event: str) -> None:
        rule = self._rule(row)
        # If the rule names channels, those that received the firing also receive the end, even if it names others now.
        firing_id = uuid5(row.alert_id, "alert.firing") if rule is None or rule.channels else None
        await outbox.notify_alert(
            connection,
            tenant=row.tenant,
            event_id=uuid5(row.alert_id, event),
            event=event,
            stream=f"alert:{row.rule}:{row.key}",
            body=_body(row, labels_of(row.rule, rule, row.key)),
            channels=() if rule is None else rule.channels,
            job=row.key if rule is not None and rule.condition in JOB_CONDITIONS else None,
            received=firing_id,
        )

    def _rule(self, row: AlertRow) -> Rule | None:
        """Return the current rule; None if it was deleted meanwhile."""
        return self._rules.get(row.tenant, BUILT_IN).get(row.rule)

    async def _read_edits(self, connection: Connection) -> None:
        if self._edited or self._evaluations % REREAD_EVERY == 0:
            self._edited = False
            try:
                written = await alerts.all_rules(connection)
                self._rules = {tenant: rules_of(rules) for tenant, rules in written.items()}
                self._silences = await silences.open_silences(connection)
            except BaseException:
                self._edited = True
                raise

    async def _notify_jobs(self) -> None:
        """Notify of late and missed executions, which no settlement reports."""
        kinds: tuple[Literal["late", "missed"], ...] = ("late", "missed")
        for kind in kinds:
            if not self._subscriptions.wants(f"job.{kind}"):
                continue
            async with self._database.connection() as connection:
                checked, last, _ = await outbox.notify_unstarted(
                    connection, kind=kind, after=self._cursors[kind], limit=MAX_JOBS
                )
            self._cursors[kind] = last if last is not None and checked >= MAX_JOBS else _ZERO


def _body(row: AlertRow, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "alert_id": row.alert_id,
        "rule": row.rule,
        "key": row.key,
        "severity": row.severity,
        "state": row.state,
        "value": row.value,
        "threshold": row.threshold,
        "summary": row.summary,
        "labels": labels,
        "since_at": row.since_at,
        "fired_at": row.fired_at,
        "resolved_at": row.resolved_at,
    }
