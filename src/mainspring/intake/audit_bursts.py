"""Audit entries of what others can repeat at will: refused requests, failed sign-ins, uses of secrets.

The first of a kind in a minute is an entry, within a second. Its repetitions in that minute are counted, and become one
more entry when the minute is over. So a flood adds two entries a minute of each kind, and of at most `MOST_KINDS` kinds
for each tenant; the rest is counted together. A process that is killed loses what it has not written: up to a second of
first entries, and a minute of counts.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from mainspring.clock import Clock, SystemClock
from mainspring.service import Loops, Service
from mainspring.store import audit
from mainspring.store.audit import ORIGIN, Origin
from mainspring.store.db import AWAY, Database

log = structlog.get_logger()

WINDOW_S = 60.0
WRITE_S = 0.5
MOST_KINDS = 50
"""Different kinds of a tenant in one minute; also those of the cluster."""
MOST_TENANTS = 1_000
MOST_WAITING = 5_000
MOST_ADMITTED = 10_000
SEVERAL = "*"
"""Actor and subject of an entry that counts several kinds."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that happened: who did what, and from where. Equal kinds in a minute are counted."""

    tenant: int
    action: str
    by: str
    subject: str
    name: str | None = None
    details: dict[str, Any] = field(default_factory=dict)
    origin: Origin | None = None

    @property
    def kind(self) -> tuple[str, str, str]:
        return self.action, self.by, self.subject


@dataclass(slots=True)
class _Kind:
    last: Occurrence
    repeated: int = 0


class AuditBursts(Service):
    """Writes occurrences in the background, so that a refused request costs no transaction."""

    def __init__(self, database: Database, *, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()
        self._kinds: dict[int, dict[tuple[str, str, str], _Kind]] = {}
        self._fresh: list[tuple[Occurrence, int]] = []
        self._admitted: Counter[Hashable] = Counter()
        self._began = self._clock.monotonic()
        self._wake = asyncio.Event()
        self._loops = Loops("audit bursts")

    async def start(self) -> None:
        self._loops.forever("write", self._round)

    async def stop(self) -> None:
        await self._loops.stop()
        self._end_window()
        try:
            await self.write()
        except AWAY as error:
            log.warning("audit.dropped", entries=len(self._fresh), error=repr(error))

    def note(self, occurrence: Occurrence) -> None:
        """Count an occurrence; the first of its kind in a minute is written soon."""
        self._begin_window()
        if occurrence.tenant not in self._kinds and len(self._kinds) >= MOST_TENANTS:
            return
        kinds = self._kinds.setdefault(occurrence.tenant, {})
        if occurrence.kind not in kinds and len(kinds) >= MOST_KINDS:
            occurrence = replace(occurrence, by=SEVERAL, subject=SEVERAL, name=None, details={}, origin=None)
        if (known := kinds.get(occurrence.kind)) is not None:
            known.repeated += 1
            known.last = occurrence
            return
        kinds[occurrence.kind] = _Kind(occurrence)
        self._to_write(occurrence, 1)
        self._wake.set()

    def admits(self, key: Hashable, *, most: int) -> bool:
        """Whether one more entry of this kind may be written on its own: at most so many in a minute."""
        self._begin_window()
        if len(self._admitted) >= MOST_ADMITTED and key not in self._admitted:
            return False
        self._admitted[key] += 1
        return self._admitted[key] <= most

    async def write(self) -> None:
        """Write what is to be written now."""
        while self._fresh:
            occurrence, count = self._fresh[0]
            was = ORIGIN.set(occurrence.origin)
            try:
                async with self._database.transaction() as connection:
                    await audit.record(
                        connection,
                        occurrence.action,
                        occurrence.subject,
                        tenant=occurrence.tenant,
                        by=occurrence.by,
                        name=occurrence.name,
                        **(occurrence.details | ({} if count == 1 else {"repeated": count})),
                    )
            finally:
                ORIGIN.reset(was)
            self._fresh.pop(0)

    def _to_write(self, occurrence: Occurrence, count: int) -> None:
        if len(self._fresh) < MOST_WAITING:  # more only while the database is away
            self._fresh.append((occurrence, count))

    async def _round(self) -> None:
        try:
            async with asyncio.timeout(None if not self._kinds else WINDOW_S):
                await self._wake.wait()
        except TimeoutError:
            self._end_window()
        self._wake.clear()
        await self.write()
        await asyncio.sleep(WRITE_S)

    def _begin_window(self) -> None:
        if self._clock.monotonic() - self._began >= WINDOW_S:
            self._end_window()

    def _end_window(self) -> None:
        """Begin a new minute; what was repeated in the last one is to be written."""
        for kind in [kind for kinds in self._kinds.values() for kind in kinds.values() if kind.repeated]:
            self._to_write(kind.last, kind.repeated)
        self._kinds = {}
        self._admitted.clear()
        self._began = self._clock.monotonic()
