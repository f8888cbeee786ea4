"""Alert rules: what they measure, their thresholds, and the life cycle of an alert. Pure.

             broken                 broken for `for`            holds again
(ok) ───────────────────▶ pending ───────────────────▶ firing ───────────────▶ resolved
  ▲                          │
  └──────── holds again ─────┘
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from mainspring.domain.bounds import Name
from mainspring.domain.errors import Problem
from mainspring.domain.suggestion import closest

OPERATOR = 1
"""The tenant that receives alerts about the whole system."""
DOCTOR = "doctor"
"""The condition that a check of the doctor is violated."""
RULE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
Severity = Literal["info", "warning", "critical"]
AlertState = Literal["pending", "firing", "resolved"]


@dataclass(frozen=True, slots=True)
class Condition:
    """A measurable quantity. `by` is the label that distinguishes its alerts; `system` means it has no tenant."""

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
    "dead_letters": Condition("open dead letters", "from"),
    "shard_heartbeat": Condition("time since a shard's owner sent a heartbeat", "above", "s", system=True),
    "shard_jobs": Condition("jobs in the largest shard", "above", system=True),
    "scheduling_latency": Condition("p95 delay from due to queued in the last minute", "above", "s", system=True),
    "clock_skew": Condition("difference between a scheduler's clock and the database's", "above", "s", system=True),
    "engine_lost": Condition("connections of processes to optional engines that are lost", "from", system=True),
    "false_fire_locks": Condition("false locks of --fire-lock that were ignored in five minutes", "from", system=True),
    DOCTOR: Condition("violations that a check of the doctor found", "from", by="key", system=True),
    "queue_depth": Condition("executions waiting in a queue", "above", by="queue"),
    "queue_growth": Condition("consecutive evaluations at which a queue grew", "from", by="queue"),
    "result_lag": Condition("results reported and not yet settled", "above", system=True),
    "event_lag": Condition("age of the oldest event that waits for the event stream", "above", "s", system=True),
    "sla_ratio": Condition("share of the last hour's fires with finish_by that succeeded in time", "below", "ratio"),
    "run_sla_ratio": Condition("share of the last day's runs with an SLA that succeeded in time", "below", "ratio"),
    "run_sla": Condition("runs of a workflow past their SLA", "from", by="job"),
    "stale_ratio": Condition("share of stale results in the last five minutes", "above", "ratio", system=True),
    "success_ratio": Condition("share of the latest executions that succeeded", "below", "ratio"),
    "duration_p50": Condition("a job's median duration (latest 20) relative to before", "above", "times", by="job"),
    "duration_p95": Condition("a job's p95 duration (latest 20) relative to before", "above", "times", by="job"),
    "duration_p99": Condition("a job's p99 duration (latest 20) relative to before", "above", "times", by="job"),
    "start_by": Condition("fires of a job that did not start in time in the last ten minutes", "from", by="job"),
    "finish_by": Condition("a job has not succeeded by its deadline", "from", by="job"),
    "max_gap": Condition("a job has had no success within max_gap", "from", by="job"),
    "schedule_too_costly": Condition("a job was paused because its schedule exceeds the step budget", "from", by="job"),
    "topic_lag": Condition("messages of a topic that wait for a trigger", "above", by="key"),
    "channel_failing": Condition("time since a channel accepted a notification", "above", "s", by="key"),
    "output_quota": Condition("share of the tenant's output quota of today that is used", "from", "ratio"),
}  # fmt: skip


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When an alert fires and which channels it notifies.

    `for` is how long the condition must be broken. Without channels, channels that subscribe to alerts are notified.
    """

    condition: Name
    threshold: float
    for_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = msgspec.field(name="for", default=0.0)
    severity: Severity = "warning"
    only: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    channels: Annotated[tuple[Name, ...], msgspec.Meta(max_length=20)] = ()
    enabled: bool = True


BUILT_IN: dict[str, Rule] = {
    "dead_letters": Rule(condition="dead_letters", threshold=100),
    "dead_letters_critical": Rule(condition="dead_letters", threshold=500, severity="critical"),
    "shard_heartbeat_lost": Rule(condition="shard_heartbeat", threshold=5, severity="critical"),
    "shard_too_large": Rule(condition="shard_jobs", threshold=500_000),
    "scheduling_slow": Rule(condition="scheduling_latency", threshold=0.1),
    "clock_skewed": Rule(condition="clock_skew", threshold=1),
    "engine_lost": Rule(condition="engine_lost", threshold=1, for_s=30),
    "false_fire_locks": Rule(condition="false_fire_locks", threshold=1),
    "doctor": Rule(condition=DOCTOR, threshold=1, for_s=90),
    "queue_lag_short": Rule(condition="queue_depth", threshold=5_000, only="short"),
    "queue_lag_long": Rule(condition="queue_depth", threshold=1_000, only="long"),
    "queue_growing": Rule(condition="queue_growth", threshold=6),
    "result_lag": Rule(condition="result_lag", threshold=5_000),
    "event_lag": Rule(condition="event_lag", threshold=300),
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
    "schedule_too_costly": Rule(condition="schedule_too_costly", threshold=1),
    "topic_lag": Rule(condition="topic_lag", threshold=10_000, for_s=60),
    "channel_failing": Rule(condition="channel_failing", threshold=300),
    "output_quota_used_up": Rule(condition="output_quota", threshold=1),
}


def rules_of(written: Mapping[str, Rule]) -> dict[str, Rule]:
    """A tenant's rules: the built-in ones, overridden and extended by its own."""
    return {**BUILT_IN, **written}


def rule_problems(name: str, rule: Rule) -> list[Problem]:
    """Return all problems of a rule, except channels that do not exist."""
    found = []
    if not RULE_NAME.match(name):
        found.append(Problem("/name", f"invalid rule name {name!r}", "use lower case letters, digits, '_' and '-'"))
    if rule.condition not in CONDITIONS:
        close = closest(rule.condition, CONDITIONS)
        hint = f"did you mean {close!r}?" if close else f"known: {', '.join(CONDITIONS)}"
        found.append(Problem("/condition", f"unknown condition {rule.condition!r}", hint))
    if not math.isfinite(rule.threshold):
        found.append(Problem("/threshold", "threshold must be a finite number", "for example 0.95"))
    return found


@dataclass(frozen=True, slots=True)
class Reading:
    """One measured value; `says` is the sentence shown to users."""

    condition: Name
    tenant: int
    value: float
    says: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class OpenAlert:
    """An unresolved alert; `since_ms` is when the condition was first seen broken."""

    tenant: int
    rule: str
    key: str
    state: AlertState
    since_ms: int


@dataclass(frozen=True, slots=True)
class Breach:
    """A rule that a reading breaks, and the new state of its alert."""

    tenant: int
    name: str
    rule: Rule
    reading: Reading
    state: Literal["pending", "firing"]


@dataclass(frozen=True, slots=True)
class AlertChanges:
    broken: list[Breach] = field(default_factory=list)
    over: list[OpenAlert] = field(default_factory=list)


def judge(
    rules: Mapping[int, Mapping[str, Rule]], readings: Iterable[Reading], known: Sequence[OpenAlert], *, now_ms: int
) -> AlertChanges:
    """Compare readings with rules and return the changes. A tenant without rules of its own has the built-in ones."""
    before = {(a.tenant, a.rule, a.key): a for a in known}
    look = AlertChanges()
    for reading in readings:
        for name, rule in rules.get(reading.tenant, BUILT_IN).items():
            if not _is_broken(rule, reading):
                continue
            alert = before.pop((reading.tenant, name, reading.key), None)
            since_ms = now_ms if alert is None else alert.since_ms
            fires = (alert is not None and alert.state == "firing") or now_ms - since_ms >= rule.for_s * 1000
            look.broken.append(Breach(reading.tenant, name, rule, reading, "firing" if fires else "pending"))
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
    """The labels that silences match. For a deleted rule these are only the name and the key."""
    if rule is None:
        return {"rule": rule_name, "key": key}
    found = {"rule": rule_name, "severity": rule.severity, "key": key}
    by = CONDITIONS[rule.condition].by if rule.condition in CONDITIONS else ""
    return found if by in ("", "key") else {**found, by: key}
