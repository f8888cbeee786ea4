"""Runs the checks of the doctor every minute on the leading scheduler, for the alert rule `doctor`."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from mainspring import wire
from mainspring.clock import Clock, SystemClock
from mainspring.domain.alert import DOCTOR, OPERATOR, Reading
from mainspring.store.db import Database
from mainspring.store.doctor import CHECKS, check_within

log = structlog.get_logger()

EVERY_S = 60.0
REST = 20
"""A round is followed by a rest of this many times its duration, so checks take at most a twentieth of the time."""
CHECK_TIMEOUT_S = 5.0
MOST_NAMED = 3
GRACE_S = 120.0
"""Findings count until the next round is this late: then the leader no longer knows."""


class DoctorRounds:
    """The findings of the latest round. Checks look at the newest executions, so history does not make them slower."""

    def __init__(
        self,
        database: Database,
        *,
        every_s: float = EVERY_S,
        timeout_s: float = CHECK_TIMEOUT_S,
        clock: Clock | None = None,
    ) -> None:
        self._database = database
        self._every_s = every_s
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        self._next_at = self._valid_until = float("-inf")
        self._found: dict[str, tuple[list[wire.Finding], int]] = {}

    async def run_due(self) -> float:
        """Run all checks if a round is due. Return the seconds until the next one."""
        started = self._clock.monotonic()
        if started < self._next_at:
            return self._next_at - started
        if started >= self._valid_until:
            self._found = {}  # another process has led since
        for name in CHECKS:
            await self._check(name)
        ended = self._clock.monotonic()
        self._next_at = max(started + self._every_s, ended + REST * (ended - started))
        self._valid_until = self._next_at + GRACE_S
        return self._next_at - ended

    async def _check(self, name: str) -> None:
        """Run one check. What it found before stands while it takes too long."""
        found = own = await check_within(self._database, name, timeout_s=self._timeout_s)
        if found:  # every reader of the operator's tenant sees the alert, so it names nothing of other tenants
            own = await check_within(self._database, name, timeout_s=self._timeout_s, tenant=OPERATOR)
        if found is None or own is None:
            log.warning("doctor.timeout", check=CHECKS[name], timeout_s=self._timeout_s)
        else:
            self._found[name] = own, len(found)

    def readings(self) -> Sequence[Reading] | None:
        """Return one reading for each violated check; None if no recent round is known."""
        if self._clock.monotonic() >= self._valid_until:
            return None
        return [_reading(name, own, count) for name, (own, count) in self._found.items() if count]


def _reading(name: str, own: Sequence[wire.Finding], count: int) -> Reading:
    """`own`: the findings of the operator's tenant, of `count`."""
    named = [f"{finding.offender} {finding.what}" for finding in own[:MOST_NAMED]]
    if count > len(named):
        named.append(f"and {count - len(named)} more: see mainspring doctor" if named else "see mainspring doctor")
    return Reading(DOCTOR, OPERATOR, count, f"violated: {CHECKS[name]}: {'; '.join(named)}", name)
