"""Quotas of output per tenant and day, without a round trip of their own.

The statements that store output return the bytes by tenant. They are added up here, and written every few seconds.
What this process stores counts at once; what others store counts after their next write. So a tenant exceeds its quota
by one batch, and by what the other processes store in FLUSH_S.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable

import structlog

from mainspring import ports
from mainspring.service import Loops, Service
from mainspring.store import tenant_output
from mainspring.store.db import AWAY, Database
from mainspring.store.logs import Appended
from mainspring.store.tenant_output import OutputQuota
from mainspring.telemetry import metrics

log = structlog.get_logger()

FLUSH_S = 5.0


class OutputQuotas(Service):
    """Counts the output that this process stores. `cut` are the tenants whose quota is used up."""

    def __init__(self, database: Database, bus: ports.Bus, *, flush_s: float = FLUSH_S) -> None:
        self._database = database
        self._flush_s = flush_s
        self._quotas: dict[int, OutputQuota] = {}
        self._stored: Counter[int] = Counter()  # since the last write
        self._changed = asyncio.Event()
        self._changed.set()
        self._loops = Loops("output")
        self.cut: tuple[int, ...] = ()
        bus.subscribe(ports.SETTINGS, lambda _: self._changed.set(), on_gap=self._changed.set)

    async def start(self) -> None:
        await self.flush()
        self._loops.forever("count", self._step)

    async def stop(self) -> None:
        await self._loops.stop()
        try:
            await self.flush()
        except AWAY as error:
            log.warning("output.not_counted", bytes=self._stored.total(), error=repr(error))

    def add(self, appended: Iterable[Appended]) -> None:
        """Count output that was stored."""
        for one in appended:
            self._stored[one.tenant] += one.bytes
            metrics.OUTPUT_BYTES.inc(one.bytes)
            if one.cut:
                metrics.OUTPUT_CUT.inc(one.cut)
        if self._quotas:
            self._decide()

    async def flush(self) -> None:
        """Write what was stored, and read the quotas again."""
        stored, self._stored = self._stored, Counter()
        try:
            async with self._database.connection() as connection:
                self._quotas = await tenant_output.add_output(connection, stored=dict(sorted(stored.items())))
        except BaseException:
            self._stored.update(stored)
            raise
        self._decide()

    def _decide(self) -> None:
        self.cut = tuple(t for t, quota in self._quotas.items() if quota.used + self._stored[t] >= quota.most)

    async def _step(self) -> None:
        """Write while there is something to write or a quota is used up, which another day or setting changes."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), self._flush_s)
        if self._stored or self.cut or self._changed.is_set():
            self._changed.clear()
            await self.flush()
