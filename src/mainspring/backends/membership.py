"""Which schedulers an engine has registered, and which of them are gone. Pure, shared by the coordinators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

MAX_GONE = 1000
"""Schedulers remembered after their end; the database forgets them too."""


class Membership:
    """A scheduler counts as gone only if it was registered while this process was connected, and then no longer was.

    So one that never registered, or an engine that lost its data, makes no scheduler look dead.
    """

    def __init__(self) -> None:
        self._present: frozenset[UUID] = frozenset()
        self._gone: dict[UUID, None] = {}
        self._watchers: list[Callable[[], None]] = []

    def watch(self, changed: Callable[[], None]) -> None:
        self._watchers.append(changed)

    @property
    def gone(self) -> frozenset[UUID]:
        return frozenset(self._gone)

    def restart(self, members: Iterable[UUID]) -> None:
        """Begin with what the engine has now, after this process was connected to it."""
        self._gone.clear()
        self._present = frozenset()
        self.update(members)

    def update(self, members: Iterable[UUID]) -> None:
        """Note who is registered now."""
        present = frozenset(members)
        if present == self._present:
            return
        for member in self._present - present:
            self._gone[member] = None
        for member in present:
            self._gone.pop(member, None)
        while len(self._gone) > MAX_GONE:
            del self._gone[next(iter(self._gone))]
        self._present = present
        for changed in self._watchers:
            changed()

    def forget(self) -> None:
        """Forget everything: the engine is unavailable, and no scheduler is known to be gone."""
        self._present = frozenset()
        self._gone.clear()
