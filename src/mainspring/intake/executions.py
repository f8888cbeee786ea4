"""Submit and cancel executions."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from mainspring import ports, wire
from mainspring.batch import Batcher
from mainspring.clock import instant, millis
from mainspring.codec import encode
from mainspring.domain.errors import Conflict, Invalid, NotFound
from mainspring.domain.execution import can_change, execution_id, is_step
from mainspring.domain.job import WorkflowTask, needed_params
from mainspring.domain.placement.line import line_of
from mainspring.domain.workflow.run import ExecutionEnd
from mainspring.intake.validate.params import JobsWithParams, check_params
from mainspring.runs.advance import advance
from mainspring.runs.plans import PlanCache
from mainspring.store import audit, executions, jobs, lines, outbox, overlaps
from mainspring.store.db import Connection, Database, database_now_ms
from mainspring.store.definitions import Definitions
from mainspring.store.executions import NewExecution
from mainspring.views.refs import is_id

MAX_CACHED_JOBS = 100_000


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


class Submitter:
    """Inserts executions. Concurrent submissions are written in one statement."""

    def __init__(
        self, database: Database, definitions: Definitions | None = None, handoff: ports.DirectHandoff | None = None
    ) -> None:
        self._database = database
        self._handoff = handoff
        self._lines: dict[
            UUID, int
        ] = {}  # line of recently submitted jobs: where a worker may wait for a direct handoff
        self._plain: dict[
            tuple[int, str], tuple[UUID, int]
        ] = {}  # id and version of jobs without params, by tenant and ref
        self._with_params = JobsWithParams(definitions or Definitions(database))
        self._batcher: Batcher[Submission, UUID | None] = Batcher(self._insert, max_items=1000)

    async def submit(self, submission: Submission) -> UUID:
        """Insert an execution and return its id; it is committed when this returns."""
        if submission.audit is not None:
            async with self._database.transaction() as connection:
                return await insert_one(connection, submission, None)
        found = await self._batcher.submit(submission)
        if found is None:
            raise NotFound(f"there is no job {submission.job_id}")
        return found

    async def submit_known(self, ref: str, *, tenant: int, by: str) -> UUID | None:
        """Like `submit`, due now and without params, for a job `seen` under this name or id; None if it is not cached.

        Saves the query for the job: the statement that inserts the execution checks the job's version. For several at
        once, a query just before it checks their versions.
        """
        if (found := self._plain.get((tenant, ref))) is None:
            return None
        execution = await self._batcher.submit(Submission(tenant, by, found[0], version=found[1]))
        if execution is None:
            self._plain.pop((tenant, ref), None)
        return execution

    def seen(self, ref: str, row: jobs.JobRow, *, tenant: int) -> None:
        """Cache a job without params for `submit_known`. Any later change, also of its name, is a new version."""
        if row.spec.params or needed_params(row.spec.task):
            return
        if len(self._plain) > MAX_CACHED_JOBS:
            self._plain.clear()
        self._plain[tenant, ref] = (row.job_id, row.version)

    async def submit_once(self, submission: Submission, key: str) -> UUID:
        """Like `submit`, but the same key returns the same execution for a day."""
        async with self._database.transaction() as connection:
            return await insert_one(connection, submission, key)

    async def submit_batch(self, batch: wire.Batch, *, tenant: int, by: str) -> wire.BatchAnswer:
        """Submit many; each item gets its own status, in order."""
        async with self._database.connection() as connection:
            wanted = {item.job for item in batch.items}
            ids = [UUID(ref) for ref in wanted if is_id(ref)]
            found = await jobs.find_jobs(connection, tenant=tenant, names=list(wanted), job_ids=ids)
        known = {ref: job_id for ref, (job_id, _) in found.items()}
        wrong = await self._wrong_params(batch, found)
        plain = [
            Submission(tenant, by, known[i.job], i.at, i.params, i.fire_at)
            for place, i in enumerate(batch.items)
            if i.job in known and not i.key and place not in wrong
        ]
        made = iter(await self._insert(plain) if plain else [])
        answers = []
        for place, item in enumerate(batch.items):
            if item.job not in known:
                answers.append(wire.Submitted(status=404, error=f"there is no job {item.job!r}"))
            elif place in wrong:
                answers.append(wire.Submitted(status=422, error=wrong[place]))
            elif item.key:
                submission = Submission(tenant, by, known[item.job], item.at, item.params, item.fire_at)
                answers.append(await self._one_of_batch(submission, item.key))
            else:
                answers.append(_submitted(item.job, next(made)))
        return wire.BatchAnswer(items=answers)

    async def _wrong_params(self, batch: wire.Batch, found: dict[str, tuple[UUID, int]]) -> dict[int, str]:
        """Problems with the params of items, by position."""
        asking = await self._with_params.of(found.values())
        wrong: dict[int, str] = {}
        if not asking:
            return wrong
        for place, item in enumerate(batch.items):
            if item.job in found and (definition := asking.get(found[item.job])) is not None:
                try:
                    check_params(definition, item.params)
                except Invalid as error:
                    wrong[place] = error.message
        return wrong

    async def _one_of_batch(self, submission: Submission, key: str) -> wire.Submitted:
        try:
            return wire.Submitted(status=201, execution_id=await self.submit_once(submission, key))
        except Conflict as error:
            return wire.Submitted(status=409, error=error.message)
        except NotFound as error:
            return wire.Submitted(status=404, error=error.message)

    async def _insert(self, batch: list[Submission]) -> list[UUID | None]:
        if len(batch) == 1 and batch[0].at is None and not batch[0].params:
            return [await self._insert_one(batch[0])]
        answers: list[UUID | None] = [None] * len(batch)
        groups: dict[tuple[int, str], list[int]] = {}
        for place, submission in enumerate(batch):
            groups.setdefault((submission.tenant, submission.by), []).append(place)
        async with self._database.connection() as connection:
            now_ms = int(await database_now_ms(connection))
            for (tenant, by), of_group in groups.items():
                places = await _current(connection, batch, of_group, tenant=tenant)
                new = [_new(batch[place], now_ms, None) for place in places]
                new = await with_lines(connection, new, tenant=tenant)
                added = await executions.insert_executions(connection, tenant=tenant, new=new, created_by=by)
                for place, execution in zip(places, new, strict=True):
                    answers[place] = execution.execution_id if execution.execution_id in added else None
        return answers

    async def _insert_one(self, submission: Submission) -> UUID | None:
        """The common case: one statement, which may also start the execution on a waiting worker."""
        line_id = self._lines.get(submission.job_id)
        if self._handoff is None or line_id is None:
            return await self._write_one(submission, None, None)
        with self._handoff.reserve(line_id, 1, tenant=submission.tenant) as reserved:
            return await self._write_one(submission, reserved, line_id)

    async def _write_one(
        self, submission: Submission, reserved: ports.Reservation | None, line_id: int | None
    ) -> UUID | None:
        async with self._database.connection() as connection:
            row = await executions.insert_one(
                connection,
                tenant=submission.tenant,
                job_id=submission.job_id,
                trigger_key=f"manual:{uuid4()}",
                params=submission.params,
                created_by=submission.by,
                fire_at=submission.fire_at,
                session_id=reserved.sessions[0] if reserved is not None and reserved.sessions else None,
                line_id=line_id,
                version=submission.version,
            )
        if row is None:
            return None
        if len(self._lines) > MAX_CACHED_JOBS:
            self._lines.clear()
        self._lines[submission.job_id] = row["line_id"]
        if reserved is not None and row["state"] == "running":
            await reserved.assign([row])
        execution: UUID = row["execution_id"]
        return execution


async def _current(connection: Connection, batch: list[Submission], places: list[int], *, tenant: int) -> list[int]:
    """Leave out submissions for a version that is no longer the job's current one."""
    wanted = {batch[place].job_id for place in places if batch[place].version is not None}
    if not wanted:
        return places
    found = await jobs.find_jobs(connection, tenant=tenant, names=[], job_ids=list(wanted))
    versions = dict(found.values())
    return [p for p in places if batch[p].version is None or batch[p].version == versions.get(batch[p].job_id)]


async def insert_one(connection: Connection, submission: Submission, key: str | None) -> UUID:
    """Insert an execution, or return the one of its idempotency key. Needs a transaction."""
    now_ms = int(await database_now_ms(connection))
    (new,) = await with_lines(connection, [_new(submission, now_ms, key)], tenant=submission.tenant)
    known_id, first = new.execution_id, True
    if key is not None:
        asked = [submission.at, submission.params]
        asked += [] if submission.fire_at is None else [submission.fire_at]
        digest = hashlib.sha256(encode(asked)).digest()
        known_id, first_digest, first = await executions.insert_idempotency_key(
            connection,
            tenant=submission.tenant,
            job_id=submission.job_id,
            key=key,
            execution_id=new.execution_id,
            digest=digest,
        )
        if first_digest != digest:
            raise Conflict(f"the key {key!r} was used for a different request", code="key_reused")
    if first and not await executions.insert_executions(
        connection, tenant=submission.tenant, new=[new], created_by=submission.by
    ):
        raise NotFound(f"there is no job {submission.job_id}")
    if first and (entry := submission.audit) is not None:
        details = {} if entry.subject is None else {"execution_id": str(known_id)}
        await audit.record(
            connection,
            entry.action,
            entry.subject or known_id,
            tenant=submission.tenant,
            by=submission.by,
            name=entry.name,
            reason=entry.reason,
            **details,
        )
    return known_id


def _submitted(job: str, execution: UUID | None) -> wire.Submitted:
    if execution is None:  # deleted between the two queries
        return wire.Submitted(status=404, error=f"there is no job {job!r}")
    return wire.Submitted(status=201, execution_id=execution)


def _new(submission: Submission, now_ms: int, key: str | None) -> NewExecution:
    due_ms = now_ms if submission.at is None else max(now_ms, millis(submission.at))
    trigger_key = f"manual:{key or uuid4()}"
    return NewExecution(
        execution_id(submission.job_id, due_ms, trigger_key),
        submission.job_id,
        "manual",
        instant(due_ms),
        submission.params,
        submission.fire_at,
    )


async def with_lines(connection: Connection, new: list[NewExecution], *, tenant: int) -> list[NewExecution]:
    """Assign a line by params to executions whose limit keys depend on them; the others use their job's line."""
    jobs_with_params = sorted({e.job_id for e in new if e.params})
    if not jobs_with_params:
        return new
    specs = await jobs.keyed_specs(connection, tenant=tenant, job_ids=jobs_with_params)
    wanted = [n for n, e in enumerate(new) if e.params and e.job_id in specs]
    if not wanted:
        return new
    refs = await lines.intern_lines(
        connection,
        tenant=tenant,
        specs=[line_of(specs[new[n].job_id], job_id=new[n].job_id, params=new[n].params) for n in wanted],
    )
    found = list(new)
    for n, ref in zip(wanted, refs, strict=True):
        found[n] = replace(new[n], line=ref)
    return found


async def cancel(database: Database, execution: UUID, *, tenant: int, by: str, reason: str) -> None:
    """Cancel an execution: at once if it has not started, through its worker if it is running."""
    text = f"cancelled by {by}" + (f": {reason}" if reason else "")
    while True:
        async with database.transaction() as connection:
            found = await executions.execution_by_id(connection, tenant=tenant, execution_id=execution)
            if found is None:
                raise NotFound(f"there is no execution {execution}")
            if not can_change(found.state, "cancelled"):
                raise Conflict(f"the execution has already ended: {found.state}", code="already_final")
            # Lock the job before its executions, as ticks do: this may release its next execution.
            await overlaps.lock_jobs(connection, job_ids=[found.job_id])
            if await executions.cancel_pending(connection, tenant=tenant, execution_id=execution, reason=text):
                ended = [execution]
                if is_step(execution):
                    moved = await advance(connection, PlanCache(), [ExecutionEnd(execution, "cancelled", None, text)])
                    ended += moved.settled.executions
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
    """Cancel the newest live execution of a job, if any. The caller has locked the job's row."""
    for execution, _ in await executions.newest_live(connection, tenant=tenant, job_id=job_id):
        attempts = (executions.cancel_pending, executions.cancel_running, executions.cancel_pending)
        for cancel_one in attempts:  # it may start, or be requeued, between the statements
            if await cancel_one(connection, tenant=tenant, execution_id=execution, reason=reason):
                return execution
    return None
