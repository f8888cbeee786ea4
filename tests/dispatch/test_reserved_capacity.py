"""What is kept is left alone by everybody else, unless they are gone before it begins."""

from __future__ import annotations

from uuid import uuid4

from mainspring.dispatch.fairness import Shares
from mainspring.dispatch.match import FreeCapacity, LineCandidates, match
from mainspring.dispatch.reservation_cache import merge_parts
from mainspring.dispatch.reserved_capacity import Claimant, ReservedCapacity, blocked_amounts
from mainspring.domain.placement.demand import Demand

NOOP = Demand("noop")


def claimant(ends: float = 100, queue: str = "short") -> Claimant:
    return Claimant(1, queue, uuid4(), None, ends, 0.0)


def worker(free: int, *reserved: ReservedCapacity, slots: int = 4, **resources: int) -> FreeCapacity:
    return FreeCapacity(uuid4(), slots, free, resources, reserved)


def test_a_hold_keeps_others_out_and_lets_its_own_in() -> None:
    vip = ReservedCapacity(1, queue="vip", tenant=1)
    assert not worker(1, vip).fits(NOOP, claimant())
    assert worker(2, vip).fits(NOOP, claimant())
    assert worker(1, vip).fits(NOOP, claimant(queue="vip"))
    assert not worker(4, vip).fits(Demand("noop", exclusive=True), claimant())


def test_the_gap_before_it_is_for_what_is_gone_by_then() -> None:
    later = ReservedCapacity(1, start_ms=100, end_ms=200, queue="vip")
    assert worker(1, later).fits(NOOP, claimant(ends=100))
    assert not worker(1, later).fits(NOOP, claimant(ends=101))
    over = ReservedCapacity(1, start_ms=-20, end_ms=0, queue="vip")
    assert worker(1, over).fits(NOOP, claimant())


def test_holds_one_after_the_other_take_a_place_once() -> None:
    first, second = (
        ReservedCapacity(1, start_ms=10, end_ms=20, queue="vip"),
        ReservedCapacity(1, start_ms=20, end_ms=30, queue="vip"),
    )
    assert blocked_amounts([first, second], claimant()) == [(1, {}), (1, {})]
    assert worker(2, first, second).fits(NOOP, claimant())
    both = ReservedCapacity(1, start_ms=15, end_ms=30, queue="vip")
    assert not worker(2, first, both).fits(NOOP, claimant())


def test_resources_are_kept_as_slots_are() -> None:
    gpu = ReservedCapacity(1, {"gpu": 1}, queue="vip")
    one = Demand("noop", resources={"gpu": 1})
    assert not worker(3, gpu, gpu=1).fits(one, claimant())
    assert worker(3, gpu, gpu=2).fits(one, claimant())
    assert worker(3, gpu, gpu=1).fits(NOOP, claimant()), "slots are left, and it asks for no gpu"


def test_what_its_own_take_need_not_be_kept_any_more() -> None:
    there = worker(3, ReservedCapacity(2, queue="vip"))
    there.take(NOOP, claimant(queue="vip"))
    assert [one.slots for one in there.reserved] == [1]
    assert there.fits(NOOP, claimant()), "two are free and one is kept"
    there.take(NOOP, claimant())
    assert [one.slots for one in there.reserved] == [1]
    assert not there.fits(NOOP, claimant())


def test_a_line_goes_on_behind_what_must_wait() -> None:
    held = worker(2, ReservedCapacity(2, start_ms=50, queue="vip"))
    long_, short = [(n, uuid4()) for n in (1, 3)], [(n, uuid4()) for n in (2, 4)]
    rows = sorted(long_ + short)
    whole = LineCandidates(1, 1, NOOP, rows, [held])
    parts = [
        LineCandidates(1, 1, NOOP, part, [held], claimant=claimant(ends))
        for part, ends in ((long_, 100.0), (short, 10.0))
    ]
    found = match(parts, Shares())
    assert [m.execution_id for m in found] == [execution for _, execution in short]
    merge_parts(whole, parts)
    assert (whole.assigned, whole.stop) == (0, "no worker"), "the first still waits, so the line begins there"
