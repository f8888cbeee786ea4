"""Executions that a queue engine has named, by line, in the order of their ranks. Bounded; PostgreSQL has the rest."""

from __future__ import annotations

import heapq
from uuid import UUID

MAX_READY = 5_000


class ReadyHeaps:
    """The best `most` executions. One beyond that is dropped: the slow poll of PostgreSQL finds it."""

    def __init__(self, most: int = MAX_READY) -> None:
        self._most = most
        self._heaps: dict[int, list[tuple[int, UUID]]] = {}
        self._known: set[UUID] = set()

    def __len__(self) -> int:
        return len(self._known)

    def has(self, line_id: int) -> bool:
        return line_id in self._heaps

    def push(self, line_id: int, rank: int, execution_id: UUID) -> bool:
        """Add an execution; False if it is known already, or there is no room."""
        if execution_id in self._known or len(self._known) >= self._most:
            return False
        self._known.add(execution_id)
        heapq.heappush(self._heaps.setdefault(line_id, []), (rank, execution_id))
        return True

    def take(self, line_id: int, most: int) -> list[UUID]:
        """Remove and return the first executions of a line."""
        heap = self._heaps.get(line_id)
        if heap is None:
            return []
        found = [heapq.heappop(heap)[1] for _ in range(min(most, len(heap)))]
        self._known.difference_update(found)
        if not heap:
            del self._heaps[line_id]
        return found

    def clear(self) -> None:
        self._heaps.clear()
        self._known.clear()
