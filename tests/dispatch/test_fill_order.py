"""Free slots in the order they are filled."""

from __future__ import annotations

from collections import Counter
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from mainspring.dispatch.match import FreeCapacity, fill_order


def workers(*free: int, slots: int = 700) -> list[FreeCapacity]:
    return [FreeCapacity(uuid4(), slots, n) for n in free]


def test_the_least_loaded_first() -> None:
    assert fill_order(workers(3, 1, 2, slots=4), 100) == [1, 1, 3, 1, 2, 3]
    assert fill_order(workers(2, 2), 3) == [1, 2, 1]


def test_packing_fills_the_fullest_first() -> None:
    assert fill_order(workers(3, 1, 2, slots=4), 5, packs=True) == [2, 3, 3, 1, 1]


@given(st.lists(st.integers(0, 700), max_size=6), st.booleans())
def test_nobody_gets_more_than_its_slots_and_load_spreads(frees: list[int], packs: bool) -> None:
    found = workers(*frees)
    filled = fill_order(found, 1000, packs=packs)
    assert len(filled) == min(sum(frees), 1000)
    left = {n: free - got for n, free in enumerate(frees, start=1) for got in [Counter(filled)[n]]}
    assert min(left.values(), default=0) >= 0
    if not packs:
        # Whoever was given something is no fuller than anybody else, but for the last slot.
        given_to = {n: left[n] for n in set(filled)}
        assert min(given_to.values(), default=0) >= max(left.values(), default=0) - 1
