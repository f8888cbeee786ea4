"""The wheel against a plain sorted list: same entries, same order, same times."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mainspring.scheduler.wheel import DAY, HOUR, SECOND, Wheel

START = 1_800_000_000_123

distances = st.one_of(
    st.integers(-5_000, 5_000),
    st.integers(0, 2 * HOUR),
    st.integers(0, 2 * DAY),
    st.integers(0, 70 * DAY),
    st.sampled_from([0, 1, SECOND - 1, SECOND, HOUR - 1, HOUR, HOUR + 1, DAY, 30 * DAY, 31 * DAY]),
)


class AgainstList(RuleBasedStateMachine):
    """Random inserts, moves, cancels and jumps of time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.wheel = Wheel(self.now)
        self.model: dict[int, int] = {}

    @rule(key=st.integers(0, 20), distance=distances)
    def insert(self, key: int, distance: int) -> None:
        self.wheel.insert(key, self.now + distance)
        self.model[key] = self.now + distance

    @rule(key=st.integers(0, 20))
    def cancel(self, key: int) -> None:
        assert self.wheel.cancel(key) == (self.model.pop(key, None) is not None)

    @rule(distance=distances)
    def advance(self, distance: int) -> None:
        self.now = max(self.now, self.now + distance)
        due = sorted((at, key) for key, at in self.model.items() if at <= self.now)
        for _, key in due:
            del self.model[key]
        assert self.wheel.advance(self.now) == due

    @rule()
    def advance_to_wake(self) -> None:
        """Sleeping until the wheel says so never oversleeps."""
        wake = self.wheel.next_wake()
        if wake is None:
            assert not self.model
            return
        assert all(wake <= max(at, self.now) for at in self.model.values())
        self.now = max(self.now, wake)
        due = sorted((at, key) for key, at in self.model.items() if at <= self.now)
        for _, key in due:
            del self.model[key]
        assert self.wheel.advance(self.now) == due

    @invariant()
    def same_size(self) -> None:
        assert len(self.wheel) == len(self.model)


AgainstList.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestAgainstList = pytest.mark.requirement(19)(AgainstList.TestCase)


@pytest.mark.requirement(19)
def test_an_entry_forty_days_out_comes_at_its_millisecond() -> None:
    wheel = Wheel(START)
    due = START + 40 * DAY + 7
    wheel.insert(1, due)
    now, wakes = START, 0
    while now < due:
        wake = wheel.next_wake()
        assert wake is not None
        assert wheel.advance(wake) == ([(due, 1)] if wake == due else [])
        now, wakes = wake, wakes + 1
    assert now == due
    assert wakes <= 4, "one cascade per level, then the entry itself"


@given(st.lists(st.integers(0, 90 * DAY), max_size=50))
@settings(deadline=None)
def test_one_long_sleep_loses_nothing(distances: list[int]) -> None:
    wheel = Wheel(START)
    for key, distance in enumerate(distances):
        wheel.insert(key, START + distance)
    expected = sorted((START + distance, key) for key, distance in enumerate(distances))
    assert wheel.advance(START + 91 * DAY) == expected
    assert wheel.next_wake() is None
