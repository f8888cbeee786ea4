"""When an alarm about a silent cluster is raised, repeated and ended."""

from __future__ import annotations

from mainspring.domain.alarm_policy import Alarm, AlarmPolicy


def policy() -> AlarmPolicy:
    return AlarmPolicy(after_s=60, repeat_s=3600)


def test_one_failed_check_is_not_an_alarm() -> None:
    watched = policy()
    assert watched.due("gone", 0) is None
    assert watched.due("gone", 59) is None
    assert watched.due(None, 60) is None
    assert watched.due("gone", 61) is None, "the count begins again"
    assert watched.due("gone", 121) == Alarm("firing", "gone", 61)


def test_an_alarm_is_repeated_rarely_and_ended_once() -> None:
    watched = policy()
    watched.due("gone", 0)
    first = watched.due("gone", 60)
    assert first is not None
    watched.sent(first, 60)
    assert watched.due("gone", 3600) is None
    again = watched.due("still gone", 3660)
    assert again == Alarm("firing", "still gone", 0)
    watched.sent(again, 3660)
    end = watched.due(None, 3700)
    assert end is not None and (end.state, end.since_s) == ("resolved", 0)
    watched.sent(end, 3700)
    assert watched.due(None, 3715) is None


def test_an_alarm_that_was_not_sent_stays_due() -> None:
    watched = policy()
    watched.due("gone", 0)
    assert watched.due("gone", 60) is not None
    assert watched.due("gone", 75) is not None
    assert watched.due(None, 90) is None, "an outage that was never reported ends silently"
