"""Watches: every ten seconds the leader measures, judges every rule, and tells what has begun and what is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid5

import structlog

from mainspring import ports
from mainspring.alerts.readings import Memory, look
from mainspring.clock import Clock, SystemClock
from mainspring.domain.alert import BUILT_IN, AlertChanges, Rule, judge, labels_of, rules_of
from mainspring.domain.silence import Silence, silenced_until
from mainspring.ids import new_id
from mainspring.service import Loops, Service
from mainspring.store import alerts, outbox, silences
from mainspring.store.alerts import AlertRow
from mainspring.store.db import Connection, Database
from mainspring.store.subscriptions import Subscriptions

log = structlog.get_logger()

EVERY_S = 10.0
STAND_BY_S = 1.0
JOBS = 2_000
"""So many jobs with a notice are looked at in one look; with more, they take turns."""
UPKEEP_LOOKS = 360
BUSY_SHARE = 10
OF_JOBS = ("finish_by", "max_gap", "run_sla")
"""Conditions whose alerts are about one job: told to the channels that its notices name."""
_ZERO = UUID(int=0)


class Watch(Service):
    """The loop on the leader; `look_once` is one turn of it."""

    def __init__(
        self,
        database: Database,
        bus: ports.Bus,
        subscriptions: Subscriptions,
        *,
        leads: Callable[[], bool],
        every_s: float = EVERY_S,
        clock: Clock | None = None,
    ) -> None:
        self._database = database
        self._subscriptions = subscriptions
        self._leads = leads
        self._every_s = every_s
        self._clock = clock or SystemClock()
        self._memory = Memory()
        self._rules: dict[int, dict[str, Rule]] = {}
        self._silences: list[Silence] = []
        self._edited = True
        self._cursors = {"late": _ZERO, "missed": _ZERO}
        self._looks = 0
        self._loops = Loops("watch")
        bus.subscribe(ports.CHANNELS, lambda _: self.edited(), on_gap=self.edited)

    def edited(self) -> None:
        self._edited = True

    async def start(self) -> None:
        self._loops.forever("look", self._step)

    async def stop(self) -> None:
        await self._loops.stop()

    async def _step(self) -> None:
        if not self._leads():
            self._memory = Memory()
            await asyncio.sleep(STAND_BY_S)
            return
        await self.look_once()
        await asyncio.sleep(self._every_s)

    async def look_once(self) -> None:
        """One look. Losing the lead midway does no harm: every write checks what it assumes, and ids are computed."""
        async with self._database.connection() as connection:
            await self._read_edits(connection)
            started = self._clock.monotonic()
            now_ms, readings = await look(connection, self._memory)
            self._memory.deadlines_at = now_ms + round((self._clock.monotonic() - started) * 1000 * BUSY_SHARE)
            known = await alerts.open_alerts(connection)
        await self.apply(judge(self._rules, readings, known, now_ms=now_ms), now_ms=now_ms)
        await self._tell_jobs()
        self._looks += 1
        if self._looks % UPKEEP_LOOKS == 0:
            async with self._database.connection() as connection:
                await alerts.forget_alerts(connection, limit=10_000)

    async def apply(self, seen: AlertChanges, *, now_ms: int) -> None:
        """Writes what the look found, and tells of it in the same transaction."""
        if not seen.broken and not seen.over:
            return
        async with self._database.transaction() as connection:
            if seen.broken:
                ids = [new_id(now_ms) for _ in seen.broken]
                for row in await alerts.raise_alerts(connection, ids=ids, broken=seen.broken):
                    await self._tell_firing(connection, row, now_ms)
            if seen.over:
                await alerts.drop_pending(connection, over=seen.over)
                for row in await alerts.resolve_alerts(connection, over=seen.over):
                    await self._tell_resolved(connection, row)

    async def _tell_firing(self, connection: Connection, row: AlertRow, now_ms: int) -> None:
        """Once. While a silence holds, not yet: if it still fires then, it is told at its end."""
        if row.state != "firing" or row.told_at is not None:
            return
        labels = labels_of(row.rule, self._rule(row), row.key)
        if silenced_until(self._silences, labels, tenant=row.tenant, now_ms=now_ms) is not None:
            return
        if await alerts.mark_told(connection, alert_id=row.alert_id):
            await self._tell(connection, row, "alert.firing")
            log.warning("alert.firing", rule=row.rule, key=row.key, severity=row.severity, summary=row.summary)

    async def _tell_resolved(self, connection: Connection, row: AlertRow) -> None:
        """Whoever was told that it fires hears its end; the others never knew."""
        if row.told_at is not None:
            await self._tell(connection, row, "alert.resolved")
            log.info("alert.resolved", rule=row.rule, key=row.key)

    async def _tell(self, connection: Connection, row: AlertRow, event: str) -> None:
        rule = self._rule(row)
        # Where a rule names its channels, who was told hears the end, though it names others by now.
        told = uuid5(row.alert_id, "alert.firing") if rule is None or rule.channels else None
        await outbox.tell_alert(
            connection,
            tenant=row.tenant,
            event_id=uuid5(row.alert_id, event),
            event=event,
            stream=f"alert:{row.rule}:{row.key}",
            body=_body(row, labels_of(row.rule, rule, row.key)),
            channels=() if rule is None else rule.channels,
            job=row.key if rule is not None and rule.condition in OF_JOBS else None,
            as_told=told,
        )

    def _rule(self, row: AlertRow) -> Rule | None:
        """As it is now; None if it was deleted meanwhile."""
        return self._rules.get(row.tenant, BUILT_IN).get(row.rule)

    async def _read_edits(self, connection: Connection) -> None:
        if self._edited:
            self._edited = False
            try:
                written = await alerts.all_rules(connection)
                self._rules = {tenant: rules_of(rules) for tenant, rules in written.items()}
                self._silences = await silences.open_silences(connection)
            except BaseException:
                self._edited = True
                raise

    async def _tell_jobs(self) -> None:
        """Notices of jobs that nobody settles: what has not started, and what was skipped."""
        for notice, tell in (("late", outbox.tell_late), ("missed", outbox.tell_missed)):
            if not self._subscriptions.wants(f"job.{notice}"):
                continue
            async with self._database.connection() as connection:
                looked, last, _ = await tell(connection, after=self._cursors[notice], limit=JOBS)
            self._cursors[notice] = last if last is not None and looked >= JOBS else _ZERO


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
