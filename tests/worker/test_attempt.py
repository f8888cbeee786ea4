"""The attempt pipeline without a server: each attempt is reported once, whatever its executor does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID, uuid4

import msgspec
import pytest

from mainspring import wire
from mainspring.clock import SystemClock
from mainspring.codec import encode
from mainspring.domain.job import Definition, NoopTask
from mainspring.domain.retry import RetryPolicy
from mainspring.service import Loops
from mainspring.worker.attempt import BEGIN_BATCH, Attempts
from mainspring.worker.executors import Done, Executor, Work
from mainspring.worker.executors.noop import NoopExecutor
from mainspring.worker.slots import Slots
from mainspring.worker.stream import WorkStream
from mainspring.worker.transport.api_client import ApiAddress, ApiClient, PollAnswer
from mainspring.worker.transport.delivery import ResultDelivery
from mainspring.worker.transport.download import InputDownloads
from tests.support.attempts import FIRE_AT, Registry

DEFINITION = Definition("job", NoopTask(), timeout_s=1, retries=RetryPolicy(), delivery="at_least_once")


class Reported:
    """Stands for the delivery; `results` are in the order reported."""

    def __init__(self) -> None:
        self.results: list[wire.Result] = []

    def begin(self, work: Work) -> None: ...

    def end(self, work: Work, result: wire.Result, *, retry: bool) -> None:
        self.results.append(result)


class Checkpoints:
    """Stands for the api; records which executions each request names."""

    def __init__(self) -> None:
        self.requests: list[list[UUID]] = []

    async def read_checkpoints(self, body: wire.ReadCheckpoints) -> wire.Checkpoints:
        self.requests.append(body.executions)
        return wire.Checkpoints(checkpoints=dict.fromkeys(body.executions, 7))


class TwiceFinished:
    async def execute(self, work: Work) -> Done:
        raise NotImplementedError

    def begin(self, work: Work, finish: Callable[[Work, Done], None]) -> None:
        finish(work, Done("succeeded"))
        finish(work, Done("failed"))
        raise RuntimeError("after the end")


class Raising:
    def __init__(self, error: BaseException) -> None:
        self._error = error

    async def execute(self, work: Work) -> Done:
        raise self._error


class Careless:
    async def execute(self, work: Work) -> Done:
        return cast(Done, None)


class Bench:
    def __init__(self, executor: Executor) -> None:
        self.slots, self.reported, self.api = Slots(1000, {}), Reported(), Checkpoints()
        self.attempts = Attempts(
            uuid4(),
            executors={"noop": executor},
            slots=self.slots,
            api=cast(ApiClient, self.api),
            inputs=cast(InputDownloads, None),
            delivery=cast(ResultDelivery, self.reported),
            cleanup=Registry(),
            features=["checkpoints"],
            tasks=Loops("test"),
            clock=SystemClock(),
        )

    async def run(self, *, count: int = 1, attempt: int = 1, definitions: dict[str, Any] | None = None) -> list[str]:
        """Run attempts to their end and return their outcomes."""
        given = [
            wire.Assignment(uuid4(), attempt, "d", job_id=uuid4(), fire_at=FIRE_AT, params=None) for _ in range(count)
        ]
        found = {"d": DEFINITION} if definitions is None else definitions
        taken = self.attempts.take(PollAnswer(executions=given, definitions=found, cancels=[]))
        assert self.slots.busy == count
        await self.attempts.begin(taken)
        await asyncio.wait_for(self.slots.idle.wait(), 10)
        return [result.outcome for result in self.reported.results]


async def test_a_direct_executor_needs_no_task() -> None:
    bench = Bench(NoopExecutor())
    before = asyncio.all_tasks()
    assert await bench.run(count=10) == ["succeeded"] * 10
    assert asyncio.all_tasks() == before


async def test_an_attempt_that_is_finished_twice_is_reported_once() -> None:
    assert await Bench(TwiceFinished()).run() == ["succeeded"]


@pytest.mark.parametrize(
    ("executor", "error"),
    [
        (Raising(ValueError("no")), "ValueError: no"),
        (Raising(asyncio.CancelledError()), "cancelled by its executor"),
        (Careless(), "the executor returned no outcome"),
    ],
    ids=["raises", "is cancelled", "returns nothing"],
)
async def test_an_executor_that_misbehaves_fails_its_attempt(executor: Executor, error: str) -> None:
    bench = Bench(executor)
    assert await bench.run() == ["failed"]
    assert bench.reported.results[0].error == error


async def test_an_unreadable_definition_fails_its_attempt() -> None:
    bench = Bench(NoopExecutor())
    assert await bench.run(definitions={}) == ["failed"]
    assert "can't read the job: the api did not send it" in str(bench.reported.results[0].error)


async def test_first_attempts_read_no_checkpoints_and_further_ones_share_a_request_per_batch() -> None:
    bench = Bench(NoopExecutor())
    await bench.run(count=10)
    assert bench.api.requests == []
    await bench.run(count=BEGIN_BATCH + 10, attempt=2)
    assert [len(executions) for executions in bench.api.requests] == [BEGIN_BATCH, 10]


# What arrives on a stream ------------------------------------------------------------------------------


def stream_of(bench: Bench) -> WorkStream:
    return WorkStream(
        ApiAddress("http://127.0.0.1:1", "none"),
        uuid4(),
        bench.slots,
        bench.attempts,
        results_wait=lambda: False,
        is_draining=lambda: False,
    )


def assigned(definition: str, attempt: int = 1, execution_id: UUID | None = None) -> wire.Assignment:
    return wire.Assignment(execution_id or uuid4(), attempt, definition, job_id=uuid4(), fire_at=FIRE_AT, params=None)


async def test_a_definition_that_cannot_be_read_fails_its_attempts_only() -> None:
    bench = Bench(NoopExecutor())
    stream = stream_of(bench)
    bad, good = assigned("new"), assigned("d")
    line = encode(wire.Work(executions=[bad, good], definitions={"d": DEFINITION}))
    strange = b'"definitions":{"new":{"name":"x","task":{"kind":"teleport"}},'
    stream._on_line(line.replace(b'"definitions":{', strange, 1))
    stream._on_line(encode(wire.Work(executions=[assigned("d")])))  # sent once per stream
    found = {result.execution_id: result for result in bench.reported.results}
    assert found[bad.execution_id].outcome == "failed"
    assert "can't read the job" in str(found[bad.execution_id].error) and "teleport" in str(
        found[bad.execution_id].error
    )
    assert [result.outcome for result in bench.reported.results].count("succeeded") == 2


async def test_messages_of_a_newer_api_are_ignored() -> None:
    bench = Bench(NoopExecutor())
    stream = stream_of(bench)
    for line in (b"{}", b'{"type":"sing","volume":11}', b'{"type":"work","executions":[],"tempo":3}'):
        stream._on_line(line)
    stream._on_line(encode(wire.Work(executions=[assigned("d")], definitions={"d": DEFINITION})))
    assert [result.outcome for result in bench.reported.results] == ["succeeded"]


async def test_the_next_attempt_may_arrive_before_the_last_result_is_answered() -> None:
    bench = Bench(NoopExecutor())
    stream = stream_of(bench)
    first = assigned("d")
    second = assigned("d", attempt=2, execution_id=first.execution_id)
    stream._on_line(encode(wire.Work(executions=[first], definitions={"d": DEFINITION})))
    stream._on_line(encode(wire.Work(executions=[first])))  # sent again: not a second start
    assert [result.attempt for result in bench.reported.results] == [1]
    stream._on_line(encode(wire.Work(executions=[second])))
    await asyncio.sleep(0)
    bench.slots.reported(bench.reported.results[:1])
    assert bench.slots.held() == [first.execution_id], "the second attempt is not reported yet"
    while len(bench.reported.results) < 2:
        await asyncio.sleep(0)
    bench.slots.reported(bench.reported.results[1:])
    assert [result.attempt for result in bench.reported.results] == [1, 2]
    assert bench.slots.held() == []


async def test_an_attempt_that_was_disclaimed_never_begins() -> None:
    """Another worker may have it by the time its delivery arrives. Its next attempt is another matter."""
    bench, disclaimed = Bench(NoopExecutor()), list[wire.Preempt]()
    bench.slots.on_disclaim = disclaimed.append
    given = wire.Assignment(uuid4(), 1, "d", job_id=uuid4(), fire_at=FIRE_AT, params=None)
    asked = wire.Preempt(given.execution_id, 1)
    for _ in range(2):
        bench.slots.preempt([asked])
    assert disclaimed == [asked], "reported once, however often it is asked for"
    first = PollAnswer(executions=[given], definitions={"d": DEFINITION}, cancels=[])
    assert bench.attempts.take(first) == [] and bench.slots.busy == 0
    again = msgspec.structs.replace(given, attempt=2)
    taken = bench.attempts.take(PollAnswer(executions=[again], definitions={"d": DEFINITION}, cancels=[]))
    assert [work.assignment for work in taken] == [again]
    bench.slots.preempt([asked])
    assert disclaimed == [asked] and taken[0].stop_outcome is None, "an old answer ends no later attempt"
