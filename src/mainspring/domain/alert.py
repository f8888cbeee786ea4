"""Alert rules: what is measured, when it is too much, and the life of an alert. Pure.

             broken                 broken for `for`            holds again
(ok) ───────────────────▶ pending ───────────────────▶ firing ───────────────▶ resolved
  ▲                          │
  └──────── holds again ─────┘
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

Severity = Literal["info", "warning", "critical"]
AlertState = Literal["pending", "firing", "resolved"]


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that can be measured. `by` says what its alerts are told apart by; `system`: of no tenant."""

    means: str
    broken: Literal["above", "from", "below"]
    unit: str = ""
    by: Literal["", "queue", "job", "key"] = ""
    system: bool = False

    def breaks(self, value: float, threshold: float) -> bool:
        if self.broken == "below":
            return value < threshold
        return value > threshold if self.broken == "above" else value >= threshold


CONDITIONS: dict[str, Condition] = {
    "dead_letters": Condition("dead letters that wait for a person", "from"),
    "shard_heartbeat": Condition("since a shard's owner was last seen", "above", "s", system=True),
    "shard_jobs": Condition("jobs in the largest shard", "above", system=True),
    "scheduling_latency": Condition("from due to queued, 95 of 100, in the last minute", "above", "s", system=True),
    "clock_skew": Condition("a scheduler's clock from the database's", "above", "s", system=True),
    "queue_depth": Condition("executions waiting in a queue", "above", by="queue"),
    "queue_growth": Condition("looks in a row at which a queue was longer than before", "from", by="queue"),
    "result_lag": Condition("results reported and not yet settled", "above", system=True),
    "sla_ratio": Condition("of the last hour's fires with finish_by, those that succeeded in time", "below", "ratio"),
    "run_sla_ratio": Condition("of the last day's runs with an sla, those that succeeded in time", "below", "ratio"),
    "run_sla": Condition("runs of a workflow that should have succeeded by now", "from", by="job"),
    "stale_ratio": Condition("of the last five minutes' results, those that were stale", "above", "ratio", system=True),
    "success_ratio": Condition("of the latest executions, those that succeeded", "below", "ratio"),
    "duration_p50": Condition("the median of a job's latest 20 durations to those before", "above", "times", by="job"),
    "duration_p95": Condition("the same for what 95 of 100 took at most", "above", "times", by="job"),
    "duration_p99": Condition("the same for what 99 of 100 took at most", "above", "times", by="job"),
    "start_by": Condition("fires of a job that did not start in time, in the last ten minutes", "from", by="job"),
    "finish_by": Condition("a job has not succeeded by its deadline", "from", by="job"),
    "max_gap": Condition("a job has gone too long without a success", "from", by="job"),
    "channel_failing": Condition("since a channel took a notice", "above", "s", by="key"),
}  # fmt: skip


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When to tell whom. `for` is how long it must be broken; no channels: every one that asks for alerts."""

    condition: str
    threshold: float
    for_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = msgspec.field(name="for", default=0.0)
    severity: Severity = "warning"
    only: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    channels: tuple[str, ...] = ()
    enabled: bool = True


BUILT_IN: dict[str, Rule] = {
    "dead_letters": Rule(condition="dead_letters", threshold=100),
    "dead_letters_critical": Rule(condition="dead_letters", threshold=500, severity="critical"),
    "shard_heartbeat_lost": Rule(condition="shard_heartbeat", threshold=5, severity="critical"),
    "shard_too_large": Rule(condition="shard_jobs", threshold=500_000),
    "scheduling_slow": Rule(condition="scheduling_latency", threshold=0.1),
    "clock_skewed": Rule(condition="clock_skew", threshold=1),
    "queue_lag_short": Rule(condition="queue_depth", threshold=5_000, only="short"),
    "queue_lag_long": Rule(condition="queue_depth", threshold=1_000, only="long"),
    "queue_growing": Rule(condition="queue_growth", threshold=6),
    "result_lag": Rule(condition="result_lag", threshold=5_000),
    "sla_low": Rule(condition="sla_ratio", threshold=0.95),
    "run_sla_low": Rule(condition="run_sla_ratio", threshold=0.95),
    "run_sla_missed": Rule(condition="run_sla", threshold=1),
    "stale_results": Rule(condition="stale_ratio", threshold=0.01),
    "success_rate_low": Rule(condition="success_ratio", threshold=0.99),
    "duration_p50_regression": Rule(condition="duration_p50", threshold=1.5),
    "duration_p95_regression": Rule(condition="duration_p95", threshold=2),
    "duration_p99_regression": Rule(condition="duration_p99", threshold=3),
    "start_by_missed": Rule(condition="start_by", threshold=1),
    "finish_by_missed": Rule(condition="finish_by", threshold=1),
    "max_gap_missed": Rule(condition="max_gap", threshold=1),
    "channel_failing": Rule(condition="channel_failing", threshold=300),
}


def rules_of(written: Mapping[str, Rule]) -> dict[str, Rule]:
    """A tenant's rules: the built-in ones, and what it wrote instead or besides."""
    return {**BUILT_IN, **written}


@dataclass(frozen=True, slots=True)
class Reading:
    """What one look measured; `says` is a sentence for people."""

    condition: str
    tenant: int
    value: float
    says: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class Open:
    """An alert that is not resolved; `since_ms` is when it was first seen broken."""

    tenant: int
    rule: str
    key: str
    state: AlertState
    since_ms: int


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that a reading breaks, and the state its alert has from now on."""

    tenant: int
    name: str
    rule: Rule
    reading: Reading
    state: Literal["pending", "firing"]


@dataclass(frozen=True, slots=True)
class Look:
    broken: list[Broken] = field(default_factory=list)
    over: list[Open] = field(default_factory=list)


def judge(
    rules: Mapping[int, Mapping[str, Rule]], readings: Iterable[Reading], known: Sequence[Open], *, now_ms: int
) -> Look:
    """What one look changes. A tenant that wrote no rule has the built-in ones."""
    before = {(a.tenant, a.rule, a.key): a for a in known}
    look = Look()
    for reading in readings:
        for name, rule in rules.get(reading.tenant, BUILT_IN).items():
            if not _is_broken(rule, reading):
                continue
            alert = before.pop((reading.tenant, name, reading.key), None)
            since_ms = now_ms if alert is None else alert.since_ms
            fires = (alert is not None and alert.state == "firing") or now_ms - since_ms >= rule.for_s * 1000
            look.broken.append(Broken(reading.tenant, name, rule, reading, "firing" if fires else "pending"))
    look.over.extend(before.values())
    return look


def _is_broken(rule: Rule, reading: Reading) -> bool:
    return (
        rule.enabled
        and rule.condition == reading.condition
        and rule.only in (None, reading.key)
        and CONDITIONS[rule.condition].breaks(reading.value, rule.threshold)
    )


def labels_of(rule_name: str, rule: Rule | None, key: str) -> dict[str, str]:
    """What silences match an alert by; of a rule that is no more, only the name and the key."""
    if rule is None:
        return {"rule": rule_name, "key": key}
    found = {"rule": rule_name, "severity": rule.severity, "key": key}
    by = CONDITIONS[rule.condition].by if rule.condition in CONDITIONS else ""
    return found if by in ("", "key") else {**found, by: key}
