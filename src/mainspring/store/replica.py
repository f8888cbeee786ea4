"""A read replica: how far it is behind the primary, and which reads it may answer.

Several times a second the primary is asked for the position of its WAL, and the replica for the position that it has
replayed. A position that the replica has passed dates its data without comparing clocks: it has every commit that was
acknowledged before the primary was asked for that position.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable

import structlog

from mainspring.clock import Clock, SystemClock
from mainspring.domain.errors import MainspringError, Unavailable
from mainspring.service import Loops, Service
from mainspring.store.database_roles import check_role
from mainspring.store.db import AWAY, CONFLICTS, Database
from mainspring.store.hints import HintingConnection
from mainspring.store.queries import q
from mainspring.store.tenant_connection import TenantConnection
from mainspring.telemetry import metrics

log = structlog.get_logger()

CHECK_S = 0.5
CHECK_TIMEOUT_S = 2.0
SIZE = 10
MOST_POSITIONS = 1_000
MOST_NAMES, MOST_NAMES_CHARS = 10_000, 1_000
MOST_WRITERS = 100_000
"""With more writers than this between two checks, all reads go to the primary until the replica has caught up."""
FAILED: tuple[type[BaseException], ...] = (*AWAY, *CONFLICTS, MainspringError)
"""Errors of a check. A replica also cancels reads that conflict with its replay."""
READ_FAILED: tuple[type[BaseException], ...] = (*AWAY, *CONFLICTS, Unavailable)
"""Errors of a read after which the primary answers."""


class Replica(Service):
    """The replica of one API process. `may_serve` decides on each read."""

    def __init__(
        self, url: str, primary: Database, *, max_lag_s: float, tenants: bool = False, clock: Clock | None = None
    ) -> None:
        self._primary = primary
        self._max_lag_s = max_lag_s
        self._clock = clock or SystemClock()
        self._loops = Loops("replica")
        self._has_tenants = tenants
        self._has_checked_role = False
        kind = TenantConnection if tenants else HintingConnection
        self._pools = Database(url, size=SIZE, hot_size=1, connection_class=kind)
        self._positions: deque[tuple[float, int]] = deque(maxlen=MOST_POSITIONS)  # of the primary, by when asked
        self._written: dict[Hashable, float] = {}
        self._seen: dict[str, float] = {}
        self._all_written = float("-inf")
        self.caught_up = float("-inf")
        """It has every commit that was acknowledged before this time, by the monotonic clock."""
        self.problem: str | None = "not checked yet"

    async def start(self) -> None:
        await self._pools.open()
        self._loops.forever("check", self._check_and_wait, backoff_s=CHECK_S)

    async def stop(self) -> None:
        await self._loops.stop()
        await self._pools.close()

    def of(self, tenant: int) -> Database:
        """Return the replica as one tenant sees it."""
        return self._pools.seen_by(tenant, root=self._primary.root) if self._has_tenants else self._pools

    @property
    def lag_s(self) -> float:
        """Age of the newest commit that the replica is known to have; infinite before the first check."""
        return self._clock.monotonic() - self.caught_up

    def may_serve(self, reader: Hashable, *, seen_after: str | None = None) -> bool:
        """Whether the replica is healthy, within its bound, and has every write that this reader has made.

        `seen_after` names writes through other processes: they were made before this process first saw their names.
        """
        named_at = float("-inf") if seen_after is None else self._first_sight(seen_after)
        if self.problem is not None or self.lag_s > self._max_lag_s:
            return False
        return self.caught_up >= max(self._all_written, named_at, self._written.get(reader, float("-inf")))

    def _first_sight(self, names: str) -> float:
        if len(names) > MOST_NAMES_CHARS:
            return float("inf")
        if len(self._seen) >= MOST_NAMES:
            self._seen.clear()
        return self._seen.setdefault(names, self._clock.monotonic())

    def wrote(self, writer: Hashable) -> None:
        """Note a write, after its commit and before its response."""
        if len(self._written) >= MOST_WRITERS:
            self._written.clear()
            self._all_written = self._clock.monotonic()
        self._written[writer] = self._clock.monotonic()

    def failed(self, error: BaseException) -> None:
        """Note a failed read: the next check decides when the replica is used again."""
        self._note(f"a read failed: {str(error) or type(error).__name__}")

    async def _check_and_wait(self) -> None:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                await self.check()
        except FAILED as error:
            self._note(str(error) or type(error).__name__)
            await self._pools.discard_idle()
        metrics.REPLICA_LAG.set(self.lag_s)
        await asyncio.sleep(CHECK_S)

    async def check(self) -> None:
        """Compare the positions of both servers once."""
        asked = self._clock.monotonic()
        async with self._primary.connection() as connection:
            self._positions.append((asked, int(await connection.fetchval(q("wal_position")))))
        async with self._pools.connection() as connection:
            if self._has_tenants and not self._has_checked_role:
                await check_role(connection, "tenant")
                self._has_checked_role = True
            row = await connection.fetchrow(q("replay_position"))
            assert row is not None
            is_standby, replayed = row
        if not is_standby:
            self._note("it is not a standby (any more)")
            return
        while self._positions and self._positions[0][1] <= replayed:
            self.caught_up = self._positions.popleft()[0]
        self._written = {writer: at for writer, at in self._written.items() if at > self.caught_up}
        self._note(None)

    def _note(self, problem: str | None) -> None:
        if problem is not None and self.problem is None:
            log.warning("replica.unusable", problem=problem)
        elif problem is None and self.problem is not None:
            log.info("replica.usable", lag_s=round(self.lag_s, 3))
        self.problem = problem

    def notes(self) -> list[str]:
        """What `doctor` says about the replica."""
        if self.problem is not None:
            return [f"the replica is not used: {self.problem}; the primary answers all reads"]
        if self.lag_s > self._max_lag_s:
            return [
                f"the replica is {self.lag_s:.1f} s behind, and may be {self._max_lag_s:g} s: the primary answers all"
                " reads"
            ]
        return []
