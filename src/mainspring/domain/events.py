"""What is told to whoever watches. One catalogue; an event names executions, the database has the details."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

import msgspec

Kind = Literal["started", "finished", "output", "paused"]
"""`paused`: the failure of these executions made the system pause their jobs."""


class Event(msgspec.Struct, frozen=True):
    """Something happened to these executions. With very many at once, some are left out and counted in `more`."""

    kind: Kind
    executions: list[UUID]
    more: int = 0
