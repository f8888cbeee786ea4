"""Matching against what must hold whatever comes: nothing is given out twice, too much, out of order, or held back."""

from __future__ import annotations

from collections import Counter
from uuid import UUID, uuid4

from hypothesis import given
from hypothesis import strategies as st

from mainspring.dispatch.fairness import Shares
from mainspring.dispatch.match import FreeCapacity, LineCandidates, StartBudget, best_worker, match
from mainspring.domain.placement.demand import Demand
from mainspring.domain.queue import QueueSettings

DEMANDS = [
    Demand("noop"),
    Demand("noop", resources={"cpu": 1000}),
    Demand("noop", resources={"cpu": 4000, "memory": 2}),
    Demand("noop", resources={"gpu": 1}),
    Demand("noop", exclusive=True),
]

worker = st.builds(
    lambda slots, busy, cpu, memory, gpu: FreeCapacity(
        uuid4(), slots, max(0, slots - busy), {"cpu": cpu * 1000, "memory": memory, "gpu": gpu}
    ),
    st.integers(1, 6),
    st.integers(0, 3),
    st.integers(0, 8),
    st.integers(0, 4),
    st.integers(0, 3),
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[FreeCapacity], list[LineCandidates], list[StartBudget]]:
    workers = draw(st.lists(worker, min_size=1, max_size=5))
    budgets = [StartBudget(left) for left in draw(st.lists(st.integers(0, 5), max_size=2))]
    lines = []
    for n in range(draw(st.integers(1, 5))):
        ranks = sorted(draw(st.lists(st.integers(0, 50), max_size=8)))
        serving = [r for r in workers if draw(st.booleans())] if draw(st.booleans()) else workers
        demand = draw(st.sampled_from(DEMANDS))
        line = LineCandidates(
            n,
            draw(st.integers(1, 3)),
            demand,
            [(rank, uuid4()) for rank in ranks],
            serving,
            more=draw(st.booleans()),
            packs=draw(st.booleans()),
            budgets=[g for g in budgets if draw(st.booleans())],
        )
        lines.append(line)
    return workers, lines, budgets


@given(cases())
def test_whatever_comes(case: tuple[list[FreeCapacity], list[LineCandidates], list[StartBudget]]) -> None:
    workers, lines, budgets = case
    free = {r.session_id: (r.slots, r.free, dict(r.resources)) for r in workers}
    left = [budget.left for budget in budgets]
    found = match(lines, Shares())

    by_line = {line.line_id: line for line in lines}
    taken: dict[int, list[UUID]] = {line.line_id: [] for line in lines}
    for m in found:
        line = by_line[m.line_id]
        taken[m.line_id].append(m.execution_id)
        assert m.session_id in {r.session_id for r in line.workers}, "only to workers that can run it"
        slots, slots_left, resources = free[m.session_id]
        assert slots_left > 0
        if line.demand.exclusive:
            assert slots_left == slots, "a whole worker"
        for name, amount in line.demand.resources.items():
            resources[name] -= amount
            assert resources[name] >= 0, "no more than there is"
        free[m.session_id] = (slots, 0 if line.demand.exclusive else slots_left - 1, resources)
    for line in lines:
        assert taken[line.line_id] == [execution for _, execution in line.rows[: line.assigned]], (
            "from the head, in order"
        )
    for budget, before in zip(budgets, left, strict=True):
        assert sum(line.assigned for line in lines if budget in line.budgets) == before - budget.left <= before
    if not any(line.stop == "more" for line in lines):
        for line in lines:
            if line.assigned < len(line.rows):
                full = any(budget.left <= 0 for budget in line.budgets)
                assert full or best_worker(line) is None, "nothing is held back that fits"


def pending(line_id: int, tenant: int, count: int, workers: list[FreeCapacity], first_rank: int = 0) -> LineCandidates:
    return LineCandidates(line_id, tenant, DEMANDS[0], [(first_rank + n, uuid4()) for n in range(count)], workers)


def test_by_rank_across_lines_of_a_tenant() -> None:
    workers = [FreeCapacity(uuid4(), 4, 4)]
    lines = [pending(n, 1, 0, workers) for n in (1, 2)]
    lines[0].rows = [(rank, uuid4()) for rank in (10, 11, 13)]
    lines[1].rows = [(rank, uuid4()) for rank in (12, 14)]
    assert [m.line_id for m in match(lines, Shares())] == [1, 1, 2, 1]


def test_what_is_behind_the_last_row_may_come_first() -> None:
    """So matching ends there, and nothing of a worse rank goes before it."""
    workers = [FreeCapacity(uuid4(), 9, 9)]
    lines = [pending(1, 1, 2, workers), pending(2, 1, 2, workers, first_rank=100)]
    lines[0].more = True
    assert [m.line_id for m in match(lines, Shares())] == [1, 1]
    assert [line.stop for line in lines] == ["more", "more"]


@given(st.lists(st.integers(1, 9), min_size=2, max_size=4), st.integers(1, 60))
def test_shares_follow_weights(weights: list[int], slots: int) -> None:
    """Over any stretch in which all want more, each gets its part within one execution each."""
    workers = [FreeCapacity(uuid4(), slots, slots)]
    shares = Shares()
    shares.weights = dict(enumerate(weights))
    lines = [pending(n, n, 100, workers, first_rank=n * 1000) for n in range(len(weights))]
    got = Counter(m.line_id for m in match(lines, shares))
    for n, weight in enumerate(weights):
        assert abs(got[n] - slots * weight / sum(weights)) <= len(weights)


def test_one_slot_at_a_time_is_shared_too() -> None:
    """A flood that came first does not win every single slot."""
    shares, got = Shares(), Counter[int]()
    flood = [(n, uuid4()) for n in range(100)]
    late = [(1000 + n, uuid4()) for n in range(5)]
    for _ in range(10):
        workers = [FreeCapacity(uuid4(), 1, 1)]
        lines = [LineCandidates(1, 1, DEMANDS[0], flood, workers), LineCandidates(2, 2, DEMANDS[0], late, workers)]
        (m,) = match(lines, shares)
        got[m.line_id] += 1
        (flood if m.line_id == 1 else late).pop(0)
    assert got == {1: 5, 2: 5}


def test_nothing_is_saved_up_while_away() -> None:
    shares = Shares()
    shares.charge(1, 1000)
    shares.begin([1, 2])
    turns = []
    for _ in range(4):
        turns.append(shares.next([1, 2]))
        shares.charge(turns[-1])
    assert sorted(turns) == [1, 1, 2, 2]


def test_scarce_things_are_kept_together() -> None:
    one, four = FreeCapacity(uuid4(), 8, 8, {"gpu": 1}), FreeCapacity(uuid4(), 8, 8, {"gpu": 4})
    gpu = Demand("noop", resources={"gpu": 1})
    assert QueueSettings().packs(gpu) and not QueueSettings().packs(DEMANDS[1])
    assert QueueSettings(placement="best_fit").packs(DEMANDS[0])
    assert not QueueSettings(placement="least_loaded").packs(gpu)
    assert best_worker(LineCandidates(1, 1, gpu, [], [four, one], packs=True)) is one


def test_least_loaded_goes_by_the_tightest_resource() -> None:
    big, small = FreeCapacity(uuid4(), 8, 6, {"cpu": 16_000}), FreeCapacity(uuid4(), 8, 8, {"cpu": 2_000})
    assert best_worker(LineCandidates(1, 1, Demand("noop", resources={"cpu": 2000}), [], [small, big])) is big
