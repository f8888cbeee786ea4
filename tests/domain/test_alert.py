"""Rules, readings and the life of an alert, without a database."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.alert import BUILT_IN, CONDITIONS, OpenAlert, Reading, Rule, judge, labels_of

LAG = Reading("result_lag", 1, 11.0, "eleven")
RULE = Rule(condition="result_lag", threshold=10.0, for_s=30.0)


def test_every_built_in_rule_measures_something_that_is_measured() -> None:
    assert {rule.condition for rule in BUILT_IN.values()} == set(CONDITIONS)


@pytest.mark.parametrize(
    ("condition", "threshold", "value", "broken"),
    [
        ("result_lag", 5000, 5000, False),
        ("result_lag", 5000, 5001, True),
        ("dead_letters", 100, 99, False),
        ("dead_letters", 100, 100, True),
        ("sla_ratio", 0.95, 0.95, False),
        ("sla_ratio", 0.95, 0.9499, True),
    ],
)
def test_a_threshold_is_where_it_says(condition: str, threshold: float, value: float, broken: bool) -> None:
    assert CONDITIONS[condition].breaks(value, threshold) is broken


def test_a_rule_waits_for_its_for() -> None:
    rules = {1: {"mine": RULE}}
    (first,) = judge(rules, [LAG], [], now_ms=0).broken
    assert first.state == "pending"
    pending = [OpenAlert(1, "mine", "", "pending", 0)]
    assert judge(rules, [LAG], pending, now_ms=29_999).broken[0].state == "pending"
    assert judge(rules, [LAG], pending, now_ms=30_000).broken[0].state == "firing"
    firing = [OpenAlert(1, "mine", "", "firing", 29_000)]
    assert judge(rules, [LAG], firing, now_ms=30_000).broken[0].state == "firing", "what fires goes on firing"
    assert judge(rules, [], firing, now_ms=40_000).over == firing


def test_a_rule_for_one_queue_minds_no_other_and_one_that_is_off_minds_nothing() -> None:
    depths = [Reading("queue_depth", 1, 9.0, "", "short"), Reading("queue_depth", 1, 9.0, "", "long")]
    rules = {1: {"one": Rule(condition="queue_depth", threshold=1.0, only="long")}}
    assert [b.reading.key for b in judge(rules, depths, [], now_ms=0).broken] == ["long"]
    rules = {1: {"one": Rule(condition="queue_depth", threshold=1.0, enabled=False)}}
    assert judge(rules, depths, [], now_ms=0).broken == []
    every = {1: {"one": Rule(condition="queue_depth", threshold=1.0)}}
    assert [b.reading.key for b in judge(every, depths, [], now_ms=0).broken] == ["short", "long"]


def test_a_tenant_without_rules_has_the_built_in_ones() -> None:
    (found,) = judge({1: {"mine": RULE}}, [Reading("dead_letters", 2, 100.0, "")], [], now_ms=0).broken
    assert (found.tenant, found.name) == (2, "dead_letters")


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(0, 6))
def test_an_alert_fires_exactly_when_it_was_broken_long_enough(broken: list[bool], held: int) -> None:
    """Against a model that counts looks: ten seconds apart, `held` of them."""
    rules = {1: {"mine": Rule(condition="result_lag", threshold=10.0, for_s=held * 10.0)}}
    known: list[OpenAlert] = []
    streak = 0
    for look, bad in enumerate(broken):
        now_ms = look * 10_000
        seen = judge(rules, [LAG] if bad else [], known, now_ms=now_ms)
        streak = streak + 1 if bad else 0
        since = {(a.rule, a.key): a.since_ms for a in known}
        known = [OpenAlert(1, b.name, "", b.state, since.get((b.name, ""), now_ms)) for b in seen.broken]
        assert [a.state for a in known] == ([] if not bad else ["firing" if streak > held else "pending"])


def test_labels_say_what_an_alert_is_about() -> None:
    assert labels_of("lag", Rule(condition="queue_depth", threshold=1.0), "short") == {
        "rule": "lag",
        "severity": "warning",
        "key": "short",
        "queue": "short",
    }
    assert "job" in labels_of("gap", Rule(condition="max_gap", threshold=1.0), "report")
