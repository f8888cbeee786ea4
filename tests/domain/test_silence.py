from __future__ import annotations

from mainspring.domain.schedule.calendar import Blackout
from mainspring.domain.silence import Silence, silenced_until


def silence(tenant: int = 1, start: int = 0, end: int = 100, **matchers: str) -> Silence:
    return Silence(tenant, matchers, Blackout(start, end))


def test_all_matchers_must_fit_and_a_star_stands_for_anything() -> None:
    labels = {"rule": "queue_lag_short", "severity": "warning", "queue": "short"}
    assert silence(rule="queue_*").fits(labels)
    assert silence(rule="queue_*", queue="short").fits(labels)
    assert not silence(rule="queue_*", queue="long").fits(labels)
    assert not silence(job="report").fits(labels), "what an alert is not about does not fit"
    assert silence(job="*").fits(labels)
    assert not silence(rule="QUEUE_*").fits(labels)


def test_a_silence_holds_in_its_window_for_its_tenant() -> None:
    labels = {"rule": "x"}
    silences = [silence(rule="x"), silence(rule="x", start=90, end=200), silence(tenant=2, rule="x", end=999)]
    assert silenced_until(silences, labels, tenant=1, now_ms=50) == 200, "one that joins it counts"
    assert silenced_until(silences[:1], labels, tenant=1, now_ms=100) is None
    assert silenced_until(silences, {"rule": "y"}, tenant=1, now_ms=50) is None
