"""Submit and cancel executions."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from mainspring import ports, wire
from mainspring.batch import Batcher
from mainspring.clock import millis
from mainspring.codec import encode
from mainspring.domain.errors import Conflict, Invalid, NotFound, clipped
from mainspring.domain.execution import can_change, is_step, new_id_suffixes
from mainspring.domain.job import WorkflowTask
from mainspring.domain.placement.line import line_of
from mainspring.domain.workflow.run import ExecutionEnd
from mainspring.intake.granted import check_granted, check_place, is_restricted
from mainspring.intake.known_jobs import KnownJob, KnownJobs
from mainspring.intake.slots import Slots
from mainspring.intake.tenant_quotas import limits_queue, reserved_queue
from mainspring.intake.validate.params import JobsWithParams
from mainspring.runs.advance import advance
from mainspring.runs.plans import PlanCache
from mainspring.store import audit, executions, jobs, lines, outbox, overlaps, triggers
from mainspring.store.db import Connection, Database, JoinedDatabase
from mainspring.store.definitions import Definitions
from mainspring.store.executions import NewExecution
from mainspring.store.lines import LineRef
from mainspring.telemetry import metrics
from mainspring.views import executions as execution_views
from mainspring.views import refs
from mainspring.views.refs import is_id

CONCURRENT_LARGE_BATCHES = 2
"""Large batches written at a time, so that hot connections are left for claims and settles."""
LARGE_BATCH = 50
"""Items from which on a batch is queued, instead of started directly where workers have free slots."""
FoundJobs = Mapping[str, tuple[UUID, int]]
"""Id and version of jobs, by their names and ids."""
Accepted = tuple[UUID, Any]
"""The id of an execution, and its row if it was inserted now; None if its idempotency key was used before."""

MOST_READS = 100
"""How often a submission reads its job again, because it changed before the insert."""
MAX_CACHED_JOBS = 100_000
MAX_ITEM_ERROR_CHARS = 500
"""Of the error of one item in a batch: its problems with pointers and hints."""
_canonical = msgspec.json.Encoder(order="sorted")


@dataclass(frozen=True, slots=True)
class SubmissionAudit:
    """The audit entry of an execution that a user requested; programs submit without: `created_by` suffices."""

    action: str
    name: str
    reason: str = ""
    subject: UUID | None = None  # None: the new execution

    @classmethod
    def of(cls, row: jobs.JobRow, reason: str = "") -> SubmissionAudit:
        """A user starts a job, or a run of a workflow."""
        if isinstance(row.spec.task, WorkflowTask):
            return cls("run.start", row.name, reason)
        return cls("job.trigger", row.name, reason, row.job_id)


@dataclass(frozen=True, slots=True)
class Submission:
    """A requested execution: its job, due time (None: now) and params."""

    tenant: int
    by: str
    job_id: UUID
    at: datetime | None = None
    params: dict[str, Any] | None = None
    fire_at: datetime | None = None  # the nominal time that templates see; None: when it is due
    audit: SubmissionAudit | None = None
    version: int | None = None  # only if the job still has this one
    keyed: bool | None = None  # whether a limit key depends on its params; None: not known
    key: str | None = None  # idempotency key


class Submitter:
    """Inserts executions. Concurrent submissions, of all tenants, are written in one statement.

    That statement has the database role of the engine. Everything else is read and written as the tenant.
    """

    def __init__(
        self, database: Database, definitions: Definitions | None = None, handoff: ports.DirectHandoff | None = None
    ) -> None:
        self._database = database
        self._definitions = definitions or Definitions(database)
        self._handoff = handoff
        self._lines: dict[UUID, int] = {}  # line of recently submitted jobs, where workers may wait
        self._jobs = KnownJobs()
        self._with_params = JobsWithParams(self._definitions)
        self._batcher: Batcher[Submission, Any] = Batcher(self._write, max_items=1000)
        self._limited: Batcher[Submission, Any] = Batcher(self._write_limited, max_items=1000)
        self._large = asyncio.Semaphore(CONCURRENT_LARGE_BATCHES)

    def joined(self, database: JoinedDatabase) -> Submitter:
        """Return one that inserts in a transaction. It queues: workers get executions after the commit."""
        return Submitter(database, self._definitions)

    async def trigger(self, ref: str, request: wire.RunNow, *, key: str | None, tenant: int, by: str) -> wire.Execution:
        """Run a job, given by name or id; return the execution as it was committed.

        Most requests take one statement: it checks that the cached version of the job is current. If not, the job is
        read again.
        """
        for _ in range(MOST_READS):
            row, job = None, self._jobs.get(tenant, ref) if request.reason is None else None
            if job is None:
                row = await refs.job_row(self._database.of(tenant), ref, tenant=tenant)
                if row.deleted_at is not None:
                    raise NotFound(f"there is no job {row.job_id}")
                job = KnownJob.of(row)
                self._jobs.put(tenant, ref, job)
            check_place(by, job.queue, job.labels, is_workflow=job.is_workflow)
            found = None
            if _allowed(job, request.params, fresh=row is not None):
                found = await self._accept(_submission(job, row, request, tenant=tenant, by=by), key)
            if found is not None:
                break
            self._jobs.forget(tenant, ref)
        else:
            raise NotFound(f"there is no job {ref}")
        execution_id, inserted = found
        if inserted is None:
            return await execution_views.get(self._database.of(tenant), execution_id, tenant=tenant)
        return executions.submitted(inserted, job=job.name, metadata=job.metadata)

    async def submit(self, submission: Submission) -> UUID:
        """Insert an execution and return its id; it is committed when this returns."""
        return await self._accepted_id(submission, None)

    async def submit_once(self, submission: Submission, key: str) -> UUID:
        """Like `submit`, but the same key returns the same execution for a day."""
        return await self._accepted_id(submission, key)

    async def _accepted_id(self, submission: Submission, key: str | None) -> UUID:
        found = await self._accept(submission, key)
        if found is None:
            raise NotFound(f"there is no job {submission.job_id}")
        return found[0]

    async def _accept(self, submission: Submission, key: str | None) -> Accepted | None:
        is_single = submission.audit is None and not isinstance(self._database, JoinedDatabase)
        if is_single and limits_queue(submission.by) and (found := await self._insert_limited(submission, key)):
            return found
        async with reserved_queue(self._database.of(submission.tenant), 1, tenant=submission.tenant, by=submission.by):
            return await self._insert_one(submission, key)

    async def _insert_limited(self, submission: Submission, key: str | None) -> Accepted | None:
        """Check the quota of the tenant and insert in one statement. None: no room, or no such job or version."""
        row = await self._limited.submit(submission if key is None else replace(submission, key=key))
        if row is not None or key is None:
            return None if row is None else (row["execution_id"], row)
        async with self._database.of(submission.tenant).hot() as connection:
            return await _first_of_key(connection, submission, key)

    async def _write_limited(self, batch: list[Submission]) -> list[Any]:
        """Insert a batch, one statement for each tenant: all of its submissions, or none."""
        places: dict[int, list[int]] = {}
        for place, submission in enumerate(batch):
            places.setdefault(submission.tenant, []).append(place)
        rows: list[Any] = [None] * len(batch)
        for tenant, of_tenant in places.items():
            for place, row in zip(
                of_tenant, await self._write([batch[place] for place in of_tenant], limited=tenant), strict=True
            ):
                rows[place] = row
        return rows

    async def _insert_one(self, submission: Submission, key: str | None) -> Accepted | None:
        if submission.audit is not None:
            async with self._database.of(submission.tenant).transaction() as connection:
                return await _insert(connection, submission, key)
        if key is not None:
            submission = replace(submission, key=key)
        row = await self._batcher.submit(submission)
        if row is not None:
            return row["execution_id"], row
        if key is None:
            return None
        async with self._database.of(submission.tenant).hot() as connection:
            return await _first_of_key(connection, submission, key)

    async def submit_batch(self, batch: wire.Batch, *, tenant: int, by: str) -> wire.BatchAnswer:
        """Submit many; each item gets its own status, in order."""
        wanted = {item.job for item in batch.items}
        async with self._database.of(tenant).connection() as connection:
            ids = [UUID(ref) for ref in wanted if is_id(ref)]
            found = await jobs.find_jobs(connection, tenant=tenant, names=list(wanted), job_ids=ids)
            if is_restricted(by):  # one job that is not granted refuses the batch
                for job_id in {job_id for job_id, _ in found.values()}:
                    check_granted(by, (await refs.known_job(connection, str(job_id), tenant=tenant)).spec)
        wrong = await self._wrong_params(batch, found)
        places = [place for place, item in enumerate(batch.items) if item.job in found and place not in wrong]
        async with self._large, reserved_queue(self._database.of(tenant), len(places), tenant=tenant, by=by):
            if await self._is_plain(batch, found, tenant):
                made = await self._write_plain(batch, places, found, tenant=tenant, by=by)
            else:
                made = await self._write_mixed(batch, places, found, tenant=tenant, by=by)
        for place, item in enumerate(batch.items):
            if place in wrong:
                made[place] = wire.Submitted(status=422, error=wrong[place])
            elif place not in made:
                made[place] = wire.Submitted(status=404, error=f"there is no job {item.job!r}")
        return wire.BatchAnswer(items=[made[place] for place in range(len(batch.items))])

    async def _is_plain(self, batch: wire.Batch, found: FoundJobs, tenant: int) -> bool:
        """Whether the items have no keys, queue in the lines of their jobs, and are too many for direct handoff."""
        if (self._handoff is not None and len(batch.items) < LARGE_BATCH) or any(item.key for item in batch.items):
            return False
        with_params = {found[item.job][0] for item in batch.items if item.params and item.job in found}
        if not with_params:
            return True
        async with self._database.of(tenant).connection() as connection:
            return not await jobs.keyed_specs(connection, tenant=tenant, job_ids=sorted(with_params))

    async def _write_plain(
        self, batch: wire.Batch, places: Sequence[int], found: FoundJobs, *, tenant: int, by: str
    ) -> dict[int, wire.Submitted]:
        """Insert a plain batch; return the outcome of the items by place, without those whose job is deleted by now."""
        by_job: dict[UUID, list[int]] = {}
        for place in places:
            by_job.setdefault(found[batch.items[place].job][0], []).append(place)
        if not by_job:
            return {}
        items = batch.items
        new = [
            executions.JobSubmissions(
                job_id,
                [None if (at := items[place].at) is None else millis(at) for place in of_job],
                [items[place].fire_at for place in of_job],
                [items[place].params for place in of_job],
            )
            for job_id, of_job in by_job.items()
        ]
        async with self._database.of(tenant).hot() as connection:
            ids = await executions.submit_many(connection, new, tenant=tenant, by=by)
        return {
            place: wire.Submitted(201, execution_id)
            for job_id, made in ids.items()
            for place, execution_id in zip(by_job[job_id], made, strict=True)
        }

    async def _write_mixed(
        self, batch: wire.Batch, places: Sequence[int], found: FoundJobs, *, tenant: int, by: str
    ) -> dict[int, wire.Submitted]:
        """Insert a batch of any items; return the outcome of each by place."""
        items = [batch.items[place] for place in places]
        wanted = [Submission(tenant, by, found[i.job][0], i.at, i.params, i.fire_at, key=i.key or None) for i in items]
        rows = await self._write(wanted) if wanted else []
        return {
            place: await self._answer(submission, row, item.job)
            for place, item, submission, row in zip(places, items, wanted, rows, strict=True)
        }

    async def _answer(self, submission: Submission, row: Any, job: str) -> wire.Submitted:
        """The status of an item; without a row its key is known, or its job was deleted between the two queries."""
        if row is not None:
            return wire.Submitted(201, row["execution_id"])
        if submission.key is not None:
            try:
                async with self._database.of(submission.tenant).connection() as connection:
                    known = await _first_of_key(connection, submission, submission.key)
            except Conflict as error:
                return wire.Submitted(status=409, error=error.message)
            if known is not None:
                return wire.Submitted(201, known[0])
        return wire.Submitted(status=404, error=f"there is no job {job!r}")

    async def _wrong_params(self, batch: wire.Batch, found: dict[str, tuple[UUID, int]]) -> dict[int, str]:
        """Problems with the params of items, by position."""
        rules = await self._with_params.of(set(found.values()))
        wrong: dict[int, str] = {}
        if not rules:
            return wrong
        for place, item in enumerate(batch.items):
            if item.job in found and (rule := rules.get(found[item.job])) is not None:
                try:
                    rule.check(item.params)
                except Invalid as error:
                    wrong[place] = clipped(str(error), MAX_ITEM_ERROR_CHARS)
        return wrong

    async def _write(self, batch: list[Submission], *, limited: int | None = None) -> list[Any]:
        """Insert a batch in one statement and start as much of it as workers have free slots for.

        Return the rows in order; None: the job is deleted, or has another version; or the tenant `limited` has no room.
        """
        keyed = await self._keyed_lines(batch)
        lines = [
            None if s.at is not None else self._lines.get(s.job_id) if line is None else line.line_id
            for s, line in zip(batch, keyed, strict=True)
        ]
        with Slots(self._handoff, [s.tenant for s in batch], lines) as slots:
            new = _columns(batch, new_id_suffixes(len(batch)), keyed, slots.sessions, lines)
            async with self._database.hot() as connection:
                rows = await executions.submit(connection, new, limited=limited)
                # Before the connection goes back to its pool, which takes three turns of the event loop.
                await slots.assign(rows, connection)
        self._remember_lines(rows, keyed)
        return rows

    def _remember_lines(self, rows: list[Any], keyed: list[LineRef | None]) -> None:
        if len(self._lines) > MAX_CACHED_JOBS:
            self._lines.clear()
        for row, line in zip(rows, keyed, strict=True):
            if row is not None and line is None:
                self._lines[row["job_id"]] = row["line_id"]

    async def _keyed_lines(self, batch: list[Submission]) -> list[LineRef | None]:
        """The lines of executions whose limit keys depend on their params."""
        found: list[LineRef | None] = [None] * len(batch)
        by_tenant: dict[int, list[int]] = {}
        for place, submission in enumerate(batch):
            if submission.params and submission.keyed is not False:
                by_tenant.setdefault(submission.tenant, []).append(place)
        if by_tenant:
            async with self._database.connection() as connection:
                for tenant, places in by_tenant.items():
                    given = [(batch[place].job_id, batch[place].params) for place in places]
                    for place, line in zip(places, await _lines_by_params(connection, given, tenant), strict=True):
                        found[place] = line
        return found


def _allowed(job: KnownJob, params: dict[str, Any] | None, *, fresh: bool) -> bool:
    """Check the params; False: they do not match the cached version, so read the job again."""
    if job.rules is None:
        return True
    try:
        job.rules.check(params)
    except Invalid:
        if fresh:
            raise
        return False
    return True


def _submission(job: KnownJob, row: jobs.JobRow | None, request: wire.RunNow, *, tenant: int, by: str) -> Submission:
    entry = None if row is None or request.reason is None else SubmissionAudit.of(row, request.reason)
    return Submission(
        tenant, by, job.job_id, request.at, request.params, request.fire_at, entry, job.version, job.keyed
    )


def _columns(
    batch: Sequence[Submission],
    suffixes: Sequence[str],
    lines: Sequence[LineRef | None],
    sessions: Sequence[UUID | None],
    session_lines: Sequence[int | None],
) -> executions.SubmissionColumns:
    return executions.SubmissionColumns(
        suffixes=suffixes,
        tenants=[s.tenant for s in batch],
        job_ids=[s.job_id for s in batch],
        versions=[s.version for s in batch],
        created_by=[s.by for s in batch],
        at_ms=[None if s.at is None else millis(s.at) for s in batch],
        fire_at=[s.fire_at for s in batch],
        params=[s.params for s in batch],
        lines=lines,
        sessions=sessions,
        session_lines=session_lines,
        keys=[s.key for s in batch],
        digests=[None if s.key is None else _digest(s) for s in batch],
    )


async def insert_one(connection: Connection, submission: Submission, key: str | None) -> UUID:
    """Insert an execution, or return the one of its idempotency key. Needs a transaction."""
    found = await _insert(connection, submission, key)
    if found is None:
        raise NotFound(f"there is no job {submission.job_id}")
    return found[0]


async def _insert(connection: Connection, submission: Submission, key: str | None) -> Accepted | None:
    """Insert an execution with its idempotency key and audit entry. None: no such job, or another version."""
    given = [(submission.job_id, submission.params)]
    lines = await _lines_by_params(connection, given, submission.tenant) if submission.keyed is not False else [None]
    submission = replace(submission, key=key)
    new = _columns([submission], new_id_suffixes(1), lines, [None], [None])
    (row,) = await executions.submit(connection, new)
    if row is None:
        return None if key is None else await _first_of_key(connection, submission, key)
    if submission.audit is not None:
        await _record_submission(connection, submission, submission.audit, row["execution_id"])
    return row["execution_id"], row


async def _first_of_key(connection: Connection, submission: Submission, key: str) -> Accepted | None:
    """The execution of a known key; None if the key is new, so that something else prevented the insert."""
    first = await executions.idempotency_key(connection, tenant=submission.tenant, job_id=submission.job_id, key=key)
    if first is None:
        return None
    execution_id, first_digest = first
    if first_digest not in (_digest(submission), canonical_digest(submission.at, submission.params)):
        raise Conflict(f"the key {key!r} was used for a different request", code="key_reused")
    metrics.IDEMPOTENCY_SKIPS.inc()
    return execution_id, None


def _digest(submission: Submission) -> bytes:
    asked = [submission.at, submission.params]
    asked += [] if submission.fire_at is None else [submission.fire_at]
    return hashlib.sha256(encode(asked)).digest()


def canonical_digest(at: datetime | None, params: dict[str, Any] | None) -> bytes:
    """The digest of a transactional submission, whose params come from jsonb: the order of keys does not count."""
    asked = [None if at is None else millis(at), params]
    return hashlib.sha256(_canonical.encode(asked)).digest()


async def _record_submission(
    connection: Connection, submission: Submission, entry: SubmissionAudit, execution_id: UUID
) -> None:
    details = {} if entry.subject is None else {"execution_id": str(execution_id)}
    await audit.record(
        connection,
        entry.action,
        entry.subject or execution_id,
        tenant=submission.tenant,
        by=submission.by,
        name=entry.name,
        reason=entry.reason,
        **details,
    )


async def with_lines(connection: Connection, new: list[NewExecution], *, tenant: int) -> list[NewExecution]:
    """Assign a line by params to executions whose limit keys depend on them; the others use their job's line."""
    found = await _lines_by_params(connection, [(e.job_id, e.params) for e in new], tenant)
    return [e if line is None else replace(e, line=line) for e, line in zip(new, found, strict=True)]


async def _lines_by_params(
    connection: Connection, given: Sequence[tuple[UUID, Any]], tenant: int
) -> list[LineRef | None]:
    """The lines of executions of (job, params); None for the line of the job."""
    found: list[LineRef | None] = [None] * len(given)
    jobs_with_params = sorted({job_id for job_id, params in given if params})
    if not jobs_with_params:
        return found
    specs = await jobs.keyed_specs(connection, tenant=tenant, job_ids=jobs_with_params)
    wanted = [n for n, (job_id, params) in enumerate(given) if params and job_id in specs]
    if not wanted:
        return found
    line_refs = await lines.intern_lines(
        connection,
        tenant=tenant,
        specs=[
            line_of(specs[job_id], job_id=job_id, params=params) for job_id, params in map(given.__getitem__, wanted)
        ],
    )
    for n, line in zip(wanted, line_refs, strict=True):
        found[n] = line
    return found


async def begin(database: Database, ref: str, session_id: UUID, *, tenant: int, by: str) -> UUID:
    """Begin an execution that a session runs on its own, outside of queues and limits."""
    row = await refs.job_row(database, ref, tenant=tenant)
    if isinstance(row.spec.task, WorkflowTask):
        raise Conflict("a workflow runs its own steps; choose another job", code="is_workflow")
    async with database.transaction() as connection:
        made = await executions.begin_execution(
            connection,
            tenant=tenant,
            job_id=row.job_id,
            session_id=session_id,
            suffix=new_id_suffixes(1)[0],
            created_by=by,
        )
    if made is None:
        raise Conflict("the session has ended, or the job was deleted", code="session_ended")
    return made


async def cancel(database: Database, execution: UUID, *, tenant: int, by: str, reason: str) -> None:
    """Cancel an execution: at once if it has not started, through its worker if it is running."""
    text = f"cancelled by {by}" + (f": {reason}" if reason else "")
    while True:
        async with database.transaction() as connection:
            found = await executions.execution_by_id(connection, tenant=tenant, execution_id=execution)
            if found is None:
                raise NotFound(f"there is no execution {execution}")
            if is_restricted(by):
                check_granted(by, (await refs.known_job(connection, str(found.job_id), tenant=tenant)).spec)
            if not can_change(found.state, "cancelled"):
                raise Conflict(f"the execution has already ended: {found.state}", code="already_final")
            # Lock the job before its executions, as ticks do: this may release its next execution.
            await overlaps.lock_jobs(connection, job_ids=[found.job_id])
            if await executions.cancel_pending(connection, tenant=tenant, execution_id=execution, reason=text):
                ended = [execution]
                if is_step(execution):
                    moved = await advance(connection, PlanCache(), [ExecutionEnd(execution, "cancelled", None, text)])
                    ended += moved.settled.executions
                await triggers.notice_ends(connection, execution_ids=ended)
                await outbox.notify_settled(connection, execution_ids=ended)
                await _record_cancel(connection, found, tenant=tenant, by=by, reason=reason)
                return
            if await executions.cancel_running(connection, tenant=tenant, execution_id=execution, reason=text):
                await _record_cancel(connection, found, tenant=tenant, by=by, reason=reason)
                return
        # Its state changed between the statements (queued to running, back, or ended): repeat.


async def _record_cancel(connection: Connection, found: wire.Execution, *, tenant: int, by: str, reason: str) -> None:
    await audit.record(
        connection,
        "execution.cancel",
        found.execution_id,
        tenant=tenant,
        by=by,
        name=found.job,
        reason=reason,
        state=found.state,
    )


async def end_latest(connection: Connection, job_id: UUID, reason: str, *, tenant: int) -> UUID | None:
    """Cancel the newest live execution of a job, if any. The caller has locked the job's row, and releases the next."""
    for execution, _ in await executions.newest_live(connection, tenant=tenant, job_id=job_id):
        pending = partial(executions.cancel_pending, release=False)
        attempts = (pending, executions.cancel_running, pending)
        for cancel_one in attempts:  # it may start, or be requeued, between the statements
            if await cancel_one(connection, tenant=tenant, execution_id=execution, reason=reason):
                return execution
    return None
