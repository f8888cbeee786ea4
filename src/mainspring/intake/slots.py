"""Slots of waiting workers for a batch of submissions: direct handoff."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Self
from uuid import UUID

from mainspring import ports
from mainspring.store.db import Connection


class Slots:
    """Reserves slots for new executions, as far as workers wait, until the block ends.

    `lines` has the line of each execution in a batch; None: it is not known, or the execution is due later.
    """

    def __init__(
        self, handoff: ports.DirectHandoff | None, tenants: Sequence[int], lines: Sequence[int | None]
    ) -> None:
        self.sessions: list[UUID | None] = [None] * len(lines)
        self._handoff = handoff
        self._tenants, self._lines = tenants, lines
        self._reserved: dict[int, ports.Reservation] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        if self._handoff is None:
            return self
        places: dict[tuple[int, int], list[int]] = {}
        for place, line_id in enumerate(self._lines):
            if line_id is not None:
                places.setdefault((self._tenants[place], line_id), []).append(place)
        try:
            for (tenant, line_id), group in places.items():
                reserved = self._stack.enter_context(self._handoff.reserve(line_id, len(group), tenant=tenant))
                self._reserved[line_id] = reserved
                for place, session in zip(group, reserved.sessions, strict=False):
                    self.sessions[place] = session
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    async def assign(self, rows: Sequence[Any], connection: Connection) -> None:
        """Send the executions that are running to their workers. Call it after the commit."""
        running: dict[int, list[Any]] = {}
        for row in rows:
            if row is not None and row["state"] == "running":
                running.setdefault(row["line_id"], []).append(row)
        for line_id, started in running.items():
            await self._reserved[line_id].assign(started, connection)
