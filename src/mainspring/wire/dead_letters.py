"""Dead letters: listing, claiming, replaying, dismissing."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec

from mainspring.domain.bounds import Duration, Name, Values
from mainspring.domain.dead_letter import DeadLetterState
from mainspring.domain.execution import State, Trigger
from mainspring.domain.job import JobSpec
from mainspring.wire.executions import Attempt
from mainspring.wire.message import Request, Response


class DeadLetter(Response):
    """An execution that failed or was lost permanently; it has the execution's id.

    `open` waits for a decision; `replaying` runs again as `replayed_as`; `held` waits for the replay of another one
    (`replay_after`); `superseded` means that its replay failed too and has its own dead letter.
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
    """The execution that succeeded instead; for a step that a user skipped or completed, the run that continues."""
    closed_at: datetime | None
    closed_by: str | None
    close_reason: str | None
    run_id: UUID | None = None
    """Set for a step whose run has a dead letter too: decisions about the run apply to the step."""
    step: str | None = None
    """The name of a step, prefixed with its workflow."""
    definition: JobSpec | None = None
    """What was executed; omitted in lists."""

    @property
    def title(self) -> str:
        """The display name: the job, or `workflow / step`."""
        step = (self.step or "").removeprefix(f"{self.job}.")
        return f"{self.job} / {step}" if step not in ("", self.job) else self.job

    @property
    def what(self) -> str:
        """The cause in one line."""
        return (self.reason or self.error or self.ended_as).strip().partition("\n")[0]


class DeadLetterGroup(Response):
    """Open dead letters of one job with the same error fingerprint. Beyond 10,000 the count is not `exact`."""

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
    first_version: int | None = None
    """The version of the job that failed first."""
    claimed_by: str | None = None
    """Who has claimed the latest one."""
    by_hour: list[int] = []
    """How many of the latest 100 ended in each of the last 24 hours, oldest first."""

    @property
    def what(self) -> str:
        """The latest cause in one line."""
        return (self.reason or self.error or self.ended_as).strip().partition("\n")[0]


class DeadLetterChoice(Request):
    """Selects open dead letters by ids, by job (name or id) or by fingerprint; oldest first."""

    ids: Annotated[list[UUID], msgspec.Meta(min_length=1, max_length=1000)] | None = None
    job: Name | None = None
    fingerprint: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000


class DeadLetterClaim(DeadLetterChoice):
    """Claims dead letters for the duration `for`: other users cannot claim, edit, replay or dismiss them."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    for_: Duration = msgspec.field(name="for", default="10m")


class DeadLetterClaimOne(Request):
    for_: Duration = msgspec.field(name="for", default="10m")


class DeadLetterEdit(Request):
    """A note, or new parameters for a replay. Omitted fields do not change."""

    note: Annotated[str, msgspec.Meta(max_length=4000)] | None = None
    params: Values | None = None


class ReplayOne(Request):
    """Runs the current version of the job. `params` replaces the parameters."""

    params: Values | None = None
    dry_run: bool = False


class ReplayMany(DeadLetterChoice):
    """Replays many: at a `rate` such as `10/1m`; with `canary`, one first and the others only if it succeeds."""

    rate: Name | None = None
    canary: bool = False
    dry_run: bool = False


class ReplayItem(Response):
    """The result for one dead letter: an execution and when it is due, a wait for the canary, or a problem."""

    dead_letter_id: UUID
    execution_id: UUID | None = None
    due_at: datetime | None = None
    problem: str | None = None
    fire_at: datetime | None = None
    job: str | None = None


class Replay(Response):
    """`replayed` became executions, `held` wait for the canary, `refused` stay open. `items` has the first 100."""

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
    """How many were dismissed, or would be with `dry_run`."""

    dismissed: int
    dry_run: bool = False
