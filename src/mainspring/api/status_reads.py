"""The responses that are cached: which changes each of them shows."""

from __future__ import annotations

from collections.abc import Iterable

from mainspring import wire
from mainspring.api.etag import tag
from mainspring.api.read_cache import (
    CachedRead,
    Key,
    Label,
    execution_label,
    final_label,
    job_label,
    lists_label,
    live_label,
    shard_label,
)
from mainspring.domain.execution import LIVE
from mainspring.ids import shard_of


def _live(executions: Iterable[wire.Execution | wire.LastExecution]) -> Iterable[Label]:
    return (execution_label(e.execution_id) for e in executions if e.state in LIVE)


def _job(key: Key, job: wire.Job) -> Iterable[Label]:
    return (
        job_label(key.tenant, job.job_id),
        job_label(key.tenant, job.name),
        shard_label(shard_of(job.job_id)),
        *_live(job.last),
    )


def _job_headers(job: wire.Job) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"etag", tag(job.job_id, job.version).encode()),)


def _execution(key: Key, execution: wire.Execution) -> Iterable[Label]:
    label = live_label if execution.state in LIVE else final_label
    labels = (label(key.tenant, execution.job_id), label(key.tenant, execution.job), *_live([execution]))
    # A prefix of the id may also fit the next execution.
    return labels if str(execution.execution_id) in key.target else (*labels, lists_label(key.tenant))


def _jobs(key: Key, page: wire.Page[wire.Job]) -> Iterable[Label]:
    shards = {shard_of(job.job_id) for job in page.items}
    return (lists_label(key.tenant), *map(shard_label, shards), *(e for job in page.items for e in _live(job.last)))


def _executions(key: Key, page: wire.Page[wire.Execution]) -> Iterable[Label]:
    return (lists_label(key.tenant), *_live(page.items))


def _executions_of_job(key: Key, page: wire.Page[wire.Execution]) -> Iterable[Label]:
    if not page.items:
        return (lists_label(key.tenant),)
    first = page.items[0]
    return (job_label(key.tenant, first.job_id), job_label(key.tenant, first.job), *_live(page.items))


JOB = CachedRead("job", _job, _job_headers)
EXECUTION = CachedRead("execution", _execution)
JOBS = CachedRead("list", _jobs)
EXECUTIONS = CachedRead("list", _executions)
EXECUTIONS_OF_JOB = CachedRead("list", _executions_of_job)
