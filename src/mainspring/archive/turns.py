"""Turns of reads from the archive: few at once, fair between tenants, and a bounded number that wait."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque

from mainspring.domain.errors import Unavailable

CONCURRENT_READS = 3
"""Per process: a read holds row groups in memory."""
READS_OF_A_TENANT = 2
"""One turn is left for other tenants, however many requests a tenant sends."""
WAITING = 60
WAITING_OF_A_TENANT = 12
WAIT_S = 10.0


class ReadTurns:
    """Gives turns to the tenants in rotation, and to the requests of a tenant in their order.

    A request that finds too many before it, or waits for too long, is refused with Unavailable.
    """

    def __init__(self) -> None:
        self._running: Counter[int] = Counter()
        self._waiting: OrderedDict[int, deque[asyncio.Future[None]]] = OrderedDict()  # the next tenant first

    async def take(self, tenant: int) -> None:
        """Return when it is the turn of this read. Call `give_back` when it has ended."""
        if self._has_room(tenant) and tenant not in self._waiting:
            self._running[tenant] += 1
            return
        queue = self._waiting.get(tenant, ())
        if len(queue) >= WAITING_OF_A_TENANT or sum(map(len, self._waiting.values())) >= WAITING:
            raise _busy()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        try:
            await asyncio.wait_for(asyncio.shield(turn), WAIT_S)
        except BaseException as error:
            if turn.done():
                self.give_back(tenant)
            else:
                self._leave(tenant, turn)
            if isinstance(error, TimeoutError):
                raise _busy() from None
            raise

    def give_back(self, tenant: int) -> None:
        self._running[tenant] -= 1
        if not self._running[tenant]:
            del self._running[tenant]
        while (following := next(filter(self._has_room, self._waiting), None)) is not None:
            self._waiting.move_to_end(following)
            turn = self._waiting[following][0]
            self._leave(following, turn)
            self._running[following] += 1
            turn.set_result(None)

    def _has_room(self, tenant: int) -> bool:
        return self._running.total() < CONCURRENT_READS and self._running[tenant] < READS_OF_A_TENANT

    def _leave(self, tenant: int, turn: asyncio.Future[None]) -> None:
        queue = self._waiting[tenant]
        queue.remove(turn)
        if not queue:
            del self._waiting[tenant]


def _busy() -> Unavailable:
    return Unavailable("too many reads of the archive wait; repeat the request", code="archive_busy")
