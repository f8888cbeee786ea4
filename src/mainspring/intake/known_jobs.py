"""Cache of what submissions need to know of a job. The inserting statement checks that its version is still current."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from mainspring.domain.job import WorkflowTask
from mainspring.domain.placement.line import keyed
from mainspring.intake.validate.params import ParamRules
from mainspring.store.jobs import JobRow

MAX_CACHED_JOBS = 20_000


@dataclass(frozen=True, slots=True)
class KnownJob:
    job_id: UUID
    version: int  # any change, also of the name, is a new version
    name: str
    rules: ParamRules | None
    keyed: bool
    metadata: dict[str, Any]
    queue: str
    labels: Mapping[str, str]
    is_workflow: bool

    @classmethod
    def of(cls, row: JobRow) -> KnownJob:
        spec = row.spec
        return cls(
            row.job_id,
            row.version,
            row.name,
            ParamRules.of(spec),
            keyed(spec),
            spec.metadata,
            spec.queue_name,
            spec.labels,
            isinstance(spec.task, WorkflowTask),
        )


class KnownJobs:
    """Jobs by tenant and reference, which is a name or an id."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[int, str], KnownJob] = {}

    def get(self, tenant: int, ref: str) -> KnownJob | None:
        return self._jobs.get((tenant, ref))

    def put(self, tenant: int, ref: str, job: KnownJob) -> None:
        if len(self._jobs) >= MAX_CACHED_JOBS:
            self._jobs.clear()
        self._jobs[tenant, ref] = job

    def forget(self, tenant: int, ref: str) -> None:
        self._jobs.pop((tenant, ref), None)
