"""Small executions that always fit would keep a large one waiting for ever: after a while, a worker is kept for it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from uuid import UUID

from mainspring.dispatch.lines import Line


class Patience:
    """Which lines have long been too large for what any worker has left, and which worker is kept for each."""

    def __init__(self) -> None:
        self._since: dict[Line, float] = {}
        self._kept: dict[Line, UUID] = {}

    def overdue(self, tight: Collection[Line], patience_s: Callable[[Line], float], now: float) -> list[Line]:
        """Those of the lines that fit nobody now, and for which it is time to keep a worker."""
        self._since = {line: self._since.get(line, now) for line in tight}
        waited = [line for line, since in self._since.items() if now - since >= patience_s(line)]
        return [line for line in waited if line not in self._kept]

    def keep(self, line: Line, session_id: UUID) -> None:
        self._kept[line] = session_id

    def let_go(self, tight: Collection[Line]) -> list[UUID]:
        """Workers that nobody needs to keep any more: their line fits somewhere again, or is empty."""
        return [self._kept.pop(line) for line in list(self._kept) if line not in tight]

    def forget(self, session_id: UUID) -> None:
        self._kept = {line: kept for line, kept in self._kept.items() if kept != session_id}
