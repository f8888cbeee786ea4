"""Claimant makes room: enough, no more, and nobody who may not be asked."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.dispatch.preemption_victims import WorkerLoad, choose_victims, may_evict, min_run_s, worker_can_run
from mainspring.dispatch.reserved_capacity import Claimant, ReservedCapacity
from mainspring.domain.placement.demand import Demand
from mainspring.domain.placement.reservation import WorkerCapacity
from mainspring.store.evictions import RunningAttempt

JOB = UUID(int=7)
URGENT = uuid4()
CLAIMANT = Claimant(1, "short", JOB, URGENT, 1e6, 0.0)


def place(slots: int = 1, **more: Any) -> WorkerCapacity:
    has: dict[str, Any] = {
        "tenant": 1, "queues": frozenset({"short"}), "kinds": frozenset({"noop"}), "labels": {}, "resources": {},
        "shared": False, "takes": frozenset({"preempt"}), "name": "w",
    }  # fmt: skip
    return WorkerCapacity(session_id=uuid4(), slots=slots, **(has | more))


def attempt(priority: int = 2, **more: Any) -> RunningAttempt:
    has: dict[str, Any] = {
        "attempt": 1, "session_id": uuid4(), "tenant": 1, "queue": "short", "job_id": uuid4(), "version": 1,
        "ran_s": 60.0, "demand": Demand("noop"), "preemptible": True, "evicted": 0, "leaving": False,
    }  # fmt: skip
    return RunningAttempt(execution_id=uuid4(), priority=priority, **(has | more))


def victims(
    *loads: WorkerLoad, demand: Demand | None = None, priority: int = 8, claimant: Claimant = CLAIMANT
) -> list[RunningAttempt] | None:
    chosen = choose_victims(demand or Demand("noop"), claimant, priority, loads)
    return None if chosen is None else chosen[1]


def test_one_of_the_lowest_priority_that_ran_least_leaves() -> None:
    low, lower, young = attempt(3), attempt(1), attempt(1, ran_s=20.0)
    assert victims(WorkerLoad(place(3), [low, lower, young])) == [young]


def test_where_there_is_room_nobody_leaves() -> None:
    full, half = WorkerLoad(place(1), [attempt()]), WorkerLoad(place(2), [attempt()])
    assert victims(full, half) is None
    assert victims(WorkerLoad(place(1), [attempt(leaving=True)])) is None, (
        "somebody leaves already, and nobody waits for that"
    )


@pytest.mark.parametrize(
    "other",
    [
        {"preemptible": False},
        {"priority": 8},
        {"tenant": 2},
        {"leaving": True},
        {"ran_s": 4.9},
        {"ran_s": 9.9, "evicted": 1},
        {"ran_s": 79.0, "evicted": 4},
    ],
)
def test_some_are_never_asked(other: dict[str, Any]) -> None:
    assert not may_evict(attempt(**other), tenant=1, priority=8)
    assert may_evict(
        replace(attempt(**other), preemptible=True, priority=2, tenant=1, leaving=False, ran_s=80.0),
        tenant=1,
        priority=8,
    )


def test_the_time_nobody_is_asked_grows_with_every_eviction() -> None:
    assert [min_run_s(n) for n in range(4)] == [5, 10, 20, 40]
    assert min_run_s(10_000) == min_run_s(12)


def test_a_worker_that_does_not_understand_it_is_left_alone() -> None:
    old, new = WorkerLoad(place(takes=frozenset()), [attempt()]), WorkerLoad(place(), [attempt(5)])
    assert victims(old, new) == list(new.running)
    assert victims(old) is None


def test_what_is_kept_for_others_is_not_room() -> None:
    first, second = attempt(1), attempt(2)
    load = WorkerLoad(place(2), [replace(first, leaving=True), second], [ReservedCapacity(1, execution_id=uuid4())])
    assert victims(load) == [second], "the place that is being made is another's"
    assert (
        victims(WorkerLoad(place(1), [replace(first, leaving=True)], [ReservedCapacity(1, execution_id=URGENT)]))
        is None
    )


def test_a_whole_worker_needs_everybody_gone() -> None:
    runs = [attempt(), attempt(3)]
    assert victims(WorkerLoad(place(4), runs), demand=Demand("noop", exclusive=True)) == runs
    assert (
        victims(WorkerLoad(place(4), [*runs, attempt(preemptible=False)]), demand=Demand("noop", exclusive=True))
        is None
    )


def test_only_workers_that_could_run_it() -> None:
    assert worker_can_run(place(), tenant=1, queue="short", demand=Demand("noop"))
    assert not worker_can_run(place(), tenant=2, queue="short", demand=Demand("noop"))
    assert worker_can_run(place(shared=True), tenant=2, queue="short", demand=Demand("noop"))
    assert not worker_can_run(place(), tenant=1, queue="long", demand=Demand("noop"))
    assert not worker_can_run(place(), tenant=1, queue="short", demand=Demand("noop", {"zone": "a"}))


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4), st.booleans()), max_size=6), max_size=3),
    st.integers(1, 8),
)
def test_the_fewest_that_suffice_leave(workers: list[list[tuple[int, int, bool]]], asked: int) -> None:
    demand = Demand("noop", resources={"cpu": asked})
    loads = [
        WorkerLoad(
            place(6, resources={"cpu": 8}),
            [
                attempt(priority, demand=Demand("noop", resources={"cpu": cpu}), preemptible=preemptible)
                for priority, cpu, preemptible in runs
            ],
        )
        for runs in workers
    ]
    chosen = choose_victims(demand, CLAIMANT, 8, loads)
    fits_now = any(load.free_without(()).fits(demand, CLAIMANT) for load in loads)
    sizes = [
        size
        for load in loads
        for size in range(1, len(load.running) + 1)
        for some in combinations([r for r in load.running if may_evict(r, tenant=1, priority=8)], size)
        if load.free_without(some).fits(demand, CLAIMANT)
    ]
    if fits_now or not sizes:
        assert chosen is None
    else:
        assert chosen is not None
        assert len(chosen[1]) == min(sizes)
        assert chosen[0].free_without(chosen[1]).fits(demand, CLAIMANT)


def test_among_many_nobody_leaves_who_could_stay() -> None:
    runs = [attempt(n % 5, demand=Demand("noop", resources={"cpu": 1})) for n in range(20)]
    load = WorkerLoad(place(100, resources={"cpu": 20}), runs)
    demand = Demand("noop", resources={"cpu": 5})
    found = victims(load, demand=demand)
    assert found is not None and len(found) == 5
    assert {r.priority for r in found} <= {0, 1}
