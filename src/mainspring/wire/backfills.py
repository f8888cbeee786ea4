"""Backfills: ranges of past fires to execute."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec

from mainspring.domain.bounds import Values
from mainspring.domain.schedule.backfill import BackfillState, Order, Reprocess
from mainspring.wire.message import Instant, Request, Response


class BackfillRequest(Request):
    """A range of past fires to execute: from `from` up to, not including, `to` (default: now).

    `reprocess` selects the instants: `none` those without an execution or with a skipped one, `failed` also those
    whose latest execution did not succeed, `all` every one. With `dry_run` nothing is written.
    """

    from_: Instant = msgspec.field(name="from")
    to: Instant | None = None
    reprocess: Reprocess = "none"
    order: Order = "oldest"
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    priority: Annotated[int, msgspec.Meta(ge=0, le=10)] = 2
    params: Values | None = None
    dry_run: bool = False


class BackfillPlan(Response):
    """The plan of a backfill: how many instants it would execute, the first of them, and how many it leaves out."""

    instants: int
    left_out: int
    first: datetime | None
    last: datetime | None
    page: list[datetime]


class Backfill(Response):
    """A range of past fires being executed. `executions` counts those created so far by state."""

    backfill_id: UUID
    job_id: UUID
    job: str
    state: BackfillState
    from_: datetime = msgspec.field(name="from")
    to: datetime
    reprocess: Reprocess
    order: Order
    concurrency: int
    priority: int
    params: Any
    instants: int
    made: int
    left_out: int
    executions: dict[str, int]
    created_at: datetime
    created_by: str
    ended_at: datetime | None
