"""A change of a job before it is saved: old and new fires side by side, and what the definition gains and loses."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from itertools import zip_longest
from typing import Any

from mainspring import wire
from mainspring.display.definitions import as_json, merge_patch
from mainspring.domain.job import JobSpec
from mainspring.intake import jobs
from mainspring.web.access import Visit
from mainspring.web.draw.diff import Line, difference


@dataclass(frozen=True, slots=True)
class Proposal:
    """What saving would do. No lines: it would change nothing."""

    patch: dict[str, Any] = field(default_factory=dict)
    fires: list[tuple[datetime | None, datetime | None]] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)


def patch_to(job: wire.Job, wanted: dict[str, Any]) -> dict[str, Any]:
    """What makes these fields of a job's definition exactly so: nothing of the old value stays."""
    old = as_json(job.spec)
    return merge_patch({name: old.get(name) for name in wanted}, wanted)


def patch_back(job: wire.Job, spec: JobSpec) -> dict[str, Any]:
    """What makes a job's definition like an earlier one; whether it is paused stays."""
    return patch_to(job, {name: value for name, value in as_json(spec).items() if name != "paused"})


async def propose(visit: Visit, job: wire.Job, patch: dict[str, Any]) -> Proposal:
    """By the same dry run that the API has, so everything that would be refused is refused here."""
    if not patch:
        return Proposal()
    change = await jobs.preview_patch(
        visit.context.database, job.job_id, patch, tenant=visit.caller.tenant, may_exceed=visit.caller.may_exceed
    )
    before = change.fires_before
    if not before and job.next_fire_at is not None:
        before = [job.next_fire_at]  # a one-time job has no schedule to ask
    lines = difference(job.spec, change.spec)
    return Proposal(patch, list(zip_longest(before, change.fires_after)), lines)
