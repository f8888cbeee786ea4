"""Free slots in the order they are filled."""

from __future__ import annotations

import asyncio
from collections import Counter
from uuid import UUID, uuid4

from hypothesis import given
from hypothesis import strategies as st

from mainspring.dispatch.service import BATCH, Waiting, deal
from mainspring.store.sessions import Session


def waiting(frees: list[int]) -> tuple[list[Waiting], list[UUID]]:
    loop = asyncio.new_event_loop()
    ids = [uuid4() for _ in frees]
    found = [
        Waiting(Session(session_id, 1, free, ("short",)), free, loop.create_future())
        for session_id, free in zip(ids, frees, strict=True)
    ]
    loop.close()
    return found, ids


def test_one_each_then_the_next() -> None:
    found, (a, b, c) = waiting([3, 1, 2])
    assert deal(found) == [a, b, c, a, c, a]


@given(st.lists(st.integers(0, 700), max_size=6))
def test_nobody_gets_more_than_its_slots_and_load_spreads(frees: list[int]) -> None:
    found, ids = waiting(frees)
    slots = deal(found)
    assert len(slots) == min(sum(frees), BATCH)
    given_to = Counter(slots)
    for session, free in zip(ids, frees, strict=True):
        assert given_to[session] <= free
        # Whoever still has room has no fewer than one less than anybody else.
        if given_to[session] < free:
            assert given_to[session] >= max(given_to.values()) - 1
