"""Dead letters: listing, claiming, replaying, dismissing."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec

from mainspring.domain.dead_letter import DeadLetterState
from mainspring.domain.execution import State, Trigger
from mainspring.domain.job import JobSpec
from mainspring.wire.executions import Attempt
from mainspring.wire.message import Request, Response


class DeadLetter(Response):
    """An execution that failed or was lost for good. Its id is the execution's.

    `open` waits for a person; `replaying` has been made an execution again (`replayed_as`); `held` waits for the replay
    of another one (`replay_after`); `superseded` means that its replay failed too and has a dead letter of its own.
    """

    dead_letter_id: UUID
    job_id: UUID
    job: str
    version: int
    state: DeadLetterState
    ended_as: State
    trigger: Trigger
    queue: str
    fingerprint: str
    fire_at: datetime
    created_at: datetime
    exit_code: int | None
    reason: str | None
    error: str | None
    attempts: list[Attempt]
    params: Any
    new_params: Any
    replay_of: UUID | None
    claimed_by: str | None
    claimed_until: datetime | None
    note: str | None
    noted_by: str | None
    replayed_as: UUID | None
    replayed_at: datetime | None
    replayed_by: str | None
    replay_after: UUID | None
    resolved_by: UUID | None
    closed_at: datetime | None
    closed_by: str | None
    close_reason: str | None
    run_id: UUID | None = None
    """Of a step whose run has a dead letter too: what is decided about that one holds for this."""
    step: str | None = None
    """Of a step, its name behind that of its workflow."""
    definition: JobSpec | None = None
    """What was executed; told only of one dead letter at a time."""

    @property
    def title(self) -> str:
        """What people call it: its job, of a step `workflow / step`."""
        step = (self.step or "").removeprefix(f"{self.job}.")
        return f"{self.job} / {step}" if step not in ("", self.job) else self.job

    @property
    def what(self) -> str:
        """What went wrong, in one line."""
        return (self.reason or self.error or self.ended_as).strip().partition("\n")[0]


class DeadLetterGroup(Response):
    """Open dead letters of one job with the same fingerprint. Beyond 10,000 the count is not `exact`."""

    job_id: UUID
    job: str
    fingerprint: str
    count: int
    exact: bool
    first_at: datetime
    last_at: datetime
    sample_id: UUID
    ended_as: State
    error: str | None
    reason: str | None

    @property
    def what(self) -> str:
        """What went wrong the last time, in one line."""
        return (self.reason or self.error or self.ended_as).strip().partition("\n")[0]


class DeadLetterChoice(Request):
    """Which open dead letters: some by id, or those of a job (by name or id), of one fingerprint; the oldest first."""

    ids: Annotated[list[UUID], msgspec.Meta(min_length=1, max_length=1000)] | None = None
    job: str | None = None
    fingerprint: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000


class DeadLetterClaim(DeadLetterChoice):
    """Claims for so long (`for`): nobody else can claim, edit, replay or dismiss them meanwhile."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    for_: str | int | float = msgspec.field(name="for", default="10m")


class DeadLetterClaimOne(Request):
    for_: str | int | float = msgspec.field(name="for", default="10m")


class DeadLetterEdit(Request):
    """A note, or the parameters that a replay is given instead of the old ones. What is left out stays."""

    note: Annotated[str, msgspec.Meta(max_length=4000)] | None = None
    params: dict[str, Any] | None = None


class ReplayOne(Request):
    """Makes an execution of the job as it is now. `params` replaces the parameters."""

    params: dict[str, Any] | None = None
    dry_run: bool = False


class ReplayMany(DeadLetterChoice):
    """Replays many: at a `rate` such as `10/1m`; with `canary` one first, and the others only if that succeeds."""

    rate: str | None = None
    canary: bool = False
    dry_run: bool = False


class ReplayItem(Response):
    """What becomes of one dead letter: an execution, due then; a place behind the canary; or a problem."""

    dead_letter_id: UUID
    execution_id: UUID | None = None
    due_at: datetime | None = None
    problem: str | None = None


class Replay(Response):
    """`replayed` become executions, `held` wait for the canary, `refused` stay open. `items` has the first hundred."""

    dry_run: bool
    replayed: int
    held: int
    refused: int
    items: list[ReplayItem]
    canary: UUID | None = None


class Dismiss(Request):
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class DismissMany(DeadLetterChoice, kw_only=True):
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    dry_run: bool = False


class Dismissed(Response):
    """How many were dismissed, or would be."""

    dismissed: int
    dry_run: bool = False
