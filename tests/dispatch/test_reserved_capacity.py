"""What is kept is left alone by everybody else, unless they are gone before it begins."""

from __future__ import annotations

from uuid import uuid4

from mainspring.dispatch.fairness import Shares
from mainspring.dispatch.match import Pending, Room, match
from mainspring.dispatch.reservation_cache import join
from mainspring.dispatch.reserved_capacity import Hold, Who, kept_from
from mainspring.domain.placement.demand import Demand

NOOP = Demand("noop")


def who(ends: float = 100, queue: str = "short") -> Who:
    return Who(1, queue, uuid4(), None, ends, 0.0)


def room(free: int, *holds: Hold, slots: int = 4, **resources: int) -> Room:
    return Room(uuid4(), slots, free, resources, holds)


def test_a_hold_keeps_others_out_and_lets_its_own_in() -> None:
    vip = Hold(1, queue="vip", tenant=1)
    assert not room(1, vip).fits(NOOP, who())
    assert room(2, vip).fits(NOOP, who())
    assert room(1, vip).fits(NOOP, who(queue="vip"))
    assert not room(4, vip).fits(Demand("noop", exclusive=True), who())


def test_the_gap_before_it_is_for_what_is_gone_by_then() -> None:
    later = Hold(1, start_ms=100, end_ms=200, queue="vip")
    assert room(1, later).fits(NOOP, who(ends=100))
    assert not room(1, later).fits(NOOP, who(ends=101))
    over = Hold(1, start_ms=-20, end_ms=0, queue="vip")
    assert room(1, over).fits(NOOP, who())


def test_holds_one_after_the_other_take_a_place_once() -> None:
    first, second = Hold(1, start_ms=10, end_ms=20, queue="vip"), Hold(1, start_ms=20, end_ms=30, queue="vip")
    assert kept_from([first, second], who()) == [(1, {}), (1, {})]
    assert room(2, first, second).fits(NOOP, who())
    both = Hold(1, start_ms=15, end_ms=30, queue="vip")
    assert not room(2, first, both).fits(NOOP, who())


def test_resources_are_kept_as_slots_are() -> None:
    gpu = Hold(1, {"gpu": 1}, queue="vip")
    one = Demand("noop", resources={"gpu": 1})
    assert not room(3, gpu, gpu=1).fits(one, who())
    assert room(3, gpu, gpu=2).fits(one, who())
    assert room(3, gpu, gpu=1).fits(NOOP, who()), "slots are left, and it asks for no gpu"


def test_what_its_own_take_need_not_be_kept_any_more() -> None:
    there = room(3, Hold(2, queue="vip"))
    there.give(NOOP, who(queue="vip"))
    assert [hold.slots for hold in there.holds] == [1]
    assert there.fits(NOOP, who()), "two are free and one is kept"
    there.give(NOOP, who())
    assert [hold.slots for hold in there.holds] == [1]
    assert not there.fits(NOOP, who())


def test_a_line_goes_on_behind_what_must_wait() -> None:
    held = room(2, Hold(2, start_ms=50, queue="vip"))
    long_, short = [(n, uuid4()) for n in (1, 3)], [(n, uuid4()) for n in (2, 4)]
    rows = sorted(long_ + short)
    whole = Pending(1, 1, NOOP, rows, [held])
    parts = [Pending(1, 1, NOOP, part, [held], who=who(ends)) for part, ends in ((long_, 100.0), (short, 10.0))]
    found = match(parts, Shares())
    assert [m.execution_id for m in found] == [execution for _, execution in short]
    join(whole, parts)
    assert (whole.tried, whole.stop) == (0, "no room"), "the first still waits, so the line begins there"
