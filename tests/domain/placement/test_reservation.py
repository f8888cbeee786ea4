"""Where reservations are kept: nowhere twice, and the same for whoever computes it."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.placement.demand import Demand
from mainspring.domain.placement.reservation import Reservation, WorkerCapacity, lay_out


def place(number: int, slots: int = 2, **more: Any) -> WorkerCapacity:
    has: dict[str, Any] = {
        "tenant": 1, "queues": frozenset({"short"}), "kinds": frozenset({"noop"}), "labels": {}, "resources": {},
        "shared": False, "takes": frozenset(), "name": f"w{number}",
    }  # fmt: skip
    return WorkerCapacity(session_id=UUID(int=number), slots=slots, **(has | more))


def reservation(number: int, slots: int = 1, start: float = 0, end: float = 10, **more: Any) -> Reservation:
    return Reservation(UUID(int=number), 1, f"r{number}", start, end, slots, **more)


def kept(layout: dict[UUID, dict[UUID, int]], number: int) -> dict[int, int]:
    return {session.int: n for session, n in layout[UUID(int=number)].items()}


def test_a_reservation_is_spread_over_the_workers_it_needs() -> None:
    assert kept(lay_out([reservation(1, 3)], [place(2), place(1)]), 1) == {1: 2, 2: 1}
    assert kept(lay_out([reservation(1, 3, workers=("w2",))], [place(1), place(2)]), 1) == {2: 2, 1: 1}
    assert kept(lay_out([reservation(1, 9)], [place(1), place(2)]), 1) == {1: 2, 2: 2}, "what is not there is not kept"


def test_windows_that_do_not_meet_share_a_place() -> None:
    layout = lay_out([reservation(1, 2), reservation(2, 2, 10, 20), reservation(3, 1, 5, 15)], [place(1), place(2)])
    assert [kept(layout, n) for n in (1, 2, 3)] == [{1: 2}, {1: 2}, {2: 1}]


def test_each_place_has_all_the_resources() -> None:
    has = [place(1, 8, resources={"gpu": 3, "cpu": 8000}), place(2, 8)]
    assert kept(lay_out([reservation(1, 3, resources={"gpu": 2})], has), 1) == {1: 1}
    both = [reservation(1, 1, resources={"gpu": 2}), reservation(2, 2, resources={"gpu": 1})]
    assert kept(lay_out(both, has), 2) == {1: 1}


def test_only_workers_that_could_do_it() -> None:
    zone = place(1, labels={"zone": "a"})
    assert reservation(1, labels={"zone": "a"}).suits(zone) and not reservation(1, labels={"zone": "b"}).suits(zone)
    assert not reservation(1, serves="long").suits(zone)
    assert not reservation(1, demand=Demand("shell")).suits(zone)
    assert not reservation(1).suits(place(1, tenant=2))
    shared = place(1, tenant=2, shared=True)
    assert reservation(1, shared=True).suits(shared) and not reservation(1).suits(shared)


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9), st.integers(1, 9), st.integers(0, 2)), max_size=8),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), max_size=5),
    st.randoms(),
)
def test_nothing_is_kept_twice(
    asked: list[tuple[int, int, int, int]], has: list[tuple[int, int]], rng: random.Random
) -> None:
    places = [place(n, slots, resources={"gpu": gpu}) for n, (slots, gpu) in enumerate(has)]
    wanted = [
        reservation(n, slots, start, start + lasts, resources={"gpu": gpu} if gpu else {})
        for n, (slots, start, lasts, gpu) in enumerate(asked)
    ]
    layout = lay_out(wanted, places)
    for at in range(20):
        now = [r for r in wanted if r.start_ms <= at < r.end_ms]
        for p in places:
            assert sum(layout[r.reservation_id].get(p.session_id, 0) for r in now) <= p.slots
            used = sum(layout[r.reservation_id].get(p.session_id, 0) * r.resources.get("gpu", 0) for r in now)
            assert used <= p.resources["gpu"]
    assert all(sum(layout[r.reservation_id].values()) <= r.slots for r in wanted)
    rng.shuffle(wanted)
    rng.shuffle(places)
    assert lay_out(wanted, places) == layout
