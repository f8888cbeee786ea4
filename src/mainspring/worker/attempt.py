"""One attempt on this worker, from assignment to reported result.

    refuse -> load checkpoint -> fetch inputs -> fetch secrets -> check settings -> execute
           -> upload artifacts -> report

`Attempts._run` is this pipeline. It is a generator, and each `yield` is a wait: for the api, or for the executor. A
first attempt without inputs only waits for its executor, so it needs no asyncio task if the executor has `begin`.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Collection, Coroutine, Generator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import structlog

from mainspring import __version__, wire
from mainspring.clock import Clock
from mainspring.domain.job import Definition, NoopTask, kind_of
from mainspring.domain.json_schema import problems
from mainspring.domain.placement.isolation import MinIsolation, raised
from mainspring.domain.plugin import PluginTask
from mainspring.domain.retry import RetryPolicy
from mainspring.service import Loops
from mainspring.telemetry.spans import Spans
from mainspring.worker.cleanup import CleanupRegistry
from mainspring.worker.executors import Done, Executor, Work, missing_parameter
from mainspring.worker.slots import Slots
from mainspring.worker.transport.api_client import ApiClient, PollAnswer
from mainspring.worker.transport.checkpoints import CheckpointReader
from mainspring.worker.transport.delivery import ResultDelivery
from mainspring.worker.transport.download import InputDownloads
from mainspring.worker.transport.secrets import fetch_secrets
from mainspring.worker.transport.upload import upload_artifacts
from mainspring.worker.usage import UsageTotals

log = structlog.get_logger()

BEGIN_BATCH = 64
"""Attempts to begin before other tasks of the event loop get a turn."""
MAX_ERROR_CHARS = 10_000

Begin = Callable[[Work, Callable[[Work, Done], None]], None]
"""`begin` of a `DirectExecutor`."""
Pipeline = Generator[asyncio.Future[Any] | Begin, Any, None]

_UNREADABLE = Definition(name="", task=NoopTask(), timeout_s=0, retries=RetryPolicy(), delivery="at_least_once")


class Attempts:
    """The attempts of one session."""

    def __init__(
        self,
        session_id: UUID,
        *,
        executors: Mapping[str, Executor],
        slots: Slots,
        api: ApiClient,
        inputs: InputDownloads,
        delivery: ResultDelivery,
        cleanup: CleanupRegistry,
        features: Collection[str],
        tasks: Loops,
        clock: Clock,
        min_isolation: MinIsolation = "none",
        spans: Spans | None = None,
        usage: UsageTotals | None = None,
    ) -> None:
        self._spans = spans
        self._usage = usage
        self._min_isolation = min_isolation
        self._session_id = session_id
        self._executors = executors
        self._slots = slots
        self._api = api
        self._checkpoints = CheckpointReader(api, session_id, features=features, tasks=tasks)
        self._inputs = inputs
        self._delivery = delivery
        self._cleanup = cleanup
        self._features = features
        self._tasks = tasks
        self._clock = clock
        self._unreadable: dict[UUID, str] = {}  # why the definitions of some assignments can't be decoded

    def take(self, answer: PollAnswer) -> list[Work]:
        """Hold every attempt that a poll brought, unless it was disclaimed: from now on heartbeats name it."""
        taken, started = [], self._clock.monotonic()
        for assignment in answer.executions:
            if self._slots.disclaims(assignment):
                continue
            definition = answer.definitions.get(assignment.definition)
            if definition is None:
                reason = answer.unreadable.get(assignment.definition, "the api did not send it")
                self._unreadable[assignment.execution_id] = reason
            elif self._min_isolation != "none":
                sandbox = raised(definition.sandbox, kind_of(definition.task), self._min_isolation)
                definition = msgspec.structs.replace(definition, sandbox=sandbox)
            work = Work(assignment, definition or _UNREADABLE, session_id=self._session_id, cleanup=self._cleanup)
            work.started = started
            self._delivery.begin(work)
            taken.append(work)
        self._slots.add(taken)
        return taken

    async def begin(self, taken: list[Work]) -> None:
        """Begin attempts a batch at a time, so that an open poll and the first results are sent in between."""
        waiting = iter(taken)
        try:
            while batch := list(islice(waiting, BEGIN_BATCH)):
                for work in batch:
                    self._advance(work, self._run(work))
                if len(batch) == BEGIN_BATCH:
                    await asyncio.sleep(0)
        finally:
            for work in waiting:  # cancelled: what is held must still end
                self._advance(work, self._run(work))

    def begin_now(self, taken: list[Work]) -> None:
        """Begin a few attempts at once, and many in batches."""
        if len(taken) > BEGIN_BATCH:
            self._tasks.spawn(self.begin(taken), "begin")
            return
        for work in taken:
            self._advance(work, self._run(work))

    # The pipeline ------------------------------------------------------------------------------------

    def _run(self, work: Work) -> Pipeline:
        """Take one attempt through all steps. A step before execution that returns `Done` ends it early."""
        executor = self._executors.get(kind_of(work.definition.task))
        done: Done | None = self._refuse(work, executor)
        if done is None and work.assignment.attempt > 1:
            yield self._checkpoints.load(work)
        if done is None and work.definition.artifacts_in:
            done = yield self._spawn(self._fetch_inputs(work), "fetch inputs")
        if done is None and work.definition.secrets:
            done = yield self._spawn(fetch_secrets(self._api, work), "fetch secrets")
        if done is None and type(work.definition.task) is PluginTask:
            done = _check_settings(work, executor)  # they may contain secrets
        if done is None:
            assert executor is not None
            # `isinstance(executor, DirectExecutor)` would cost 4 µs per attempt.
            done = yield getattr(executor, "begin", None) or self._spawn(_execute(work, executor), "execute")
            done = done or Done("failed", error="the executor returned no outcome")
        match done.outcome:
            case "succeeded" | "failed" | "timed_out":
                if work.artifacts is not None:
                    done = yield self._spawn(self._upload_artifacts(work, work.artifacts, done), "upload artifacts")
            case "cancelled" | "preempted" | "lost":
                if work.artifacts is not None:
                    yield self._spawn(_remove(work.artifacts), "discard artifacts")
        if work.inputs is not None:
            self._spawn(_remove(work.inputs), "discard inputs")
        self._report(work, done)

    def _advance(self, work: Work, pipeline: Pipeline, value: Any = None) -> None:
        """Run the pipeline up to its next wait, and have it resumed after that."""
        try:
            awaited = pipeline.send(value)
        except StopIteration:
            return
        if isinstance(awaited, asyncio.Future):
            awaited.add_done_callback(lambda waited: self._advance(work, pipeline, _result(waited, work)))
            return
        work.pipeline = pipeline
        try:
            awaited(work, self._executed)
        except Exception as error:
            self._executed(work, _failed_by(error, work))

    def _executed(self, work: Work, done: Done) -> None:
        """Resume an attempt whose executor has finished. An executor may call this twice; the first call counts."""
        if (pipeline := work.pipeline) is not None:
            work.pipeline = None
            self._advance(work, pipeline, done)

    # Its steps ---------------------------------------------------------------------------------------

    def _refuse(self, work: Work, executor: Executor | None) -> Done | None:
        """Return why this worker can't execute the attempt, or None."""
        if work.definition is _UNREADABLE:
            reason = self._unreadable.pop(work.assignment.execution_id)
            return Done("failed", error=f"this worker ({__version__}) can't read the job: {reason}")
        if executor is None:
            return _no_executor(kind_of(work.definition.task), self._executors)
        return None

    async def _fetch_inputs(self, work: Work) -> Done | None:
        if "artifacts_in" not in self._features:
            return Done("failed", error="the api does not support artifacts_in; upgrade it")
        return await self._inputs.fetch(work)

    async def _upload_artifacts(self, work: Work, folder: Path, done: Done) -> Done:
        try:
            if "artifacts" in self._features:
                done = await upload_artifacts(folder, work, done, self._api)
            return done
        finally:
            await _remove(folder)

    def _report(self, work: Work, done: Done) -> None:
        """Free the slot and queue the result for delivery."""
        self._slots.release(work)
        done = work.masked(done)
        took_s = self._clock.monotonic() - work.started
        if self._usage is not None and work.usage is not None:
            self._usage.add(work.assignment.job_id, work.usage, round(took_s * 1000))
        if self._spans is not None:
            self._spans.attempted(
                work.assignment.execution_id,
                work.assignment.attempt,
                job=work.definition.name,
                kind=kind_of(work.definition.task),
                outcome=done.outcome,
                error=done.error,
                took_s=took_s,
            )
        result = wire.Result(
            execution_id=work.assignment.execution_id,
            attempt=work.assignment.attempt,
            outcome=done.outcome,
            duration_ms=round(took_s * 1000),
            exit_code=done.exit_code,
            error=None if done.error is None else done.error[:MAX_ERROR_CHARS],
            result=done.result,
        )
        self._delivery.end(work, result, retry=done.retry)

    def _spawn(self, step: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        return self._tasks.spawn(step, name)


async def _execute(work: Work, executor: Executor) -> Done:
    return await executor.execute(work)


async def _remove(folder: Path) -> None:
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _result(waited: asyncio.Future[Any], work: Work) -> Any:
    """Return what a step returned; an exception fails the attempt and never ends the worker."""
    if waited.cancelled():
        return Done("failed", error="cancelled by its executor")
    error = waited.exception()
    return waited.result() if error is None else _failed_by(error, work)


def _failed_by(error: BaseException, work: Work) -> Done:
    if work.definition.secrets:  # a traceback would have to be masked
        log.error("attempt.step_failed", error=type(error).__name__, execution=str(work.assignment.execution_id))
    else:
        log.error("attempt.step_failed", exc_info=error)
    return Done("failed", error=f"{type(error).__name__}: {error}")


def _no_executor(kind: str, executors: Mapping[str, Executor]) -> Done:
    known = ", ".join(sorted(executors))
    if kind == "python":
        known += "; start it with `mainspring worker -m MODULE` to execute Python functions"
    return Done("failed", error=f"this worker has no executor for {kind!r}; it has {known}")


def _check_settings(work: Work, executor: Executor | None) -> Done | None:
    """Check a plug-in's settings against its schema, now that their templates can be filled in."""
    if (schema := getattr(executor, "schema", None)) is None:
        return None
    try:
        found = list(problems(work.settings, schema, "/settings"))
    except KeyError as error:
        return missing_parameter(error)
    if not found:
        return None
    return Done("failed", error="; ".join(f"{p.pointer}: {p.message} ({p.hint})" for p in found), retry=False)
