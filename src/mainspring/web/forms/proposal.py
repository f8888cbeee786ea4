"""A change of a job before it is saved: the diff of the definition, current and new fires."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from itertools import zip_longest
from typing import Any

from mainspring import wire
from mainspring.display.definitions import as_json, merge_patch
from mainspring.domain.job import JobSpec
from mainspring.intake import jobs
from mainspring.web.draw.diff import DiffLine, difference
from mainspring.web.endpoint import PageRequest


@dataclass(frozen=True, slots=True)
class Proposal:
    """What saving would do. Without lines it changes nothing. `fires` pairs the current fires with the new ones."""

    patch: dict[str, Any] = field(default_factory=dict)
    fires: list[tuple[datetime | None, datetime | None]] = field(default_factory=list)
    lines: list[DiffLine] = field(default_factory=list)


def patch_to(job: wire.Job, wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the merge patch that replaces these fields of a job's definition completely."""
    old = as_json(job.spec)
    return merge_patch({name: old.get(name) for name in wanted}, wanted)


def patch_back(job: wire.Job, spec: JobSpec) -> dict[str, Any]:
    """Return the merge patch that restores an earlier definition; `paused` is kept."""
    return patch_to(job, {name: value for name, value in as_json(spec).items() if name != "paused"})


async def propose(request: PageRequest, job: wire.Job, patch: dict[str, Any]) -> Proposal:
    """Preview a patch with the API's dry run, which refuses everything that saving would refuse."""
    if not patch:
        return Proposal()
    change = await jobs.preview_patch(
        request.context.database, job.job_id, patch, tenant=request.caller.tenant, may_exceed=request.caller.may_exceed
    )
    before = change.fires_before
    if not before and job.next_fire_at is not None:
        before = [job.next_fire_at]  # the schedule of a one-time job has no fires to list
    lines = difference(job.spec, change.spec)
    return Proposal(patch, list(zip_longest(before, change.fires_after)), lines)
