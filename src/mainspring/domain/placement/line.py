"""Lines: queued executions with the same queue, demand and limit keys share one line. Pure.

Lines are interned like schedules: each distinct combination is stored once, and claims look at lines instead of single
executions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from mainspring.domain.duration import parse_duration
from mainspring.domain.job import JobSpec
from mainspring.domain.limit import depends_on_params, resolve_key
from mainspring.domain.placement.demand import Demand
from mainspring.domain.placement.resources import parse_amounts
from mainspring.domain.sandbox import sandbox_labels
from mainspring.domain.task import MAX_FUNCTION_CHARS, PythonTask


@dataclass(frozen=True, slots=True)
class LimitKey:
    """A concurrency key, or a rate key if `per_s` is set."""

    key: str
    most: int
    per_s: float | None = None
    burst: int = 1


@dataclass(frozen=True, slots=True)
class LineSpec:
    queue: str
    demand: Demand
    limit: LimitKey | None = None
    rate: LimitKey | None = None


def demand_of(spec: JobSpec) -> Demand:
    labels = sandbox_labels(spec.sandbox) | spec.labels if spec.sandbox is not None else spec.labels
    function = spec.task.function if isinstance(spec.task, PythonTask) else ""
    if len(function) > MAX_FUNCTION_CHARS:  # saved before the names of functions were bounded
        function = ""
    spot = "" if spec.spot in (None, "never") else spec.spot
    return Demand(spec.kind, labels, parse_amounts(spec.resources), spec.exclusive, function, spot)


def line_of(spec: JobSpec, *, job_id: UUID, params: Mapping[str, Any] | None = None) -> LineSpec:
    """The line of an execution with these params; scheduled fires have none."""
    limit = rate = None
    if spec.ordered:
        # Running one at a time by lowest rank keeps the order.
        limit = LimitKey(f"order {job_id}", 1)
    elif spec.concurrency is not None:
        key = resolve_key(spec.concurrency.key, job=spec.name, params=params)
        limit = LimitKey(key, spec.concurrency.limit)
    if spec.rate is not None:
        key = resolve_key(spec.rate.key, job=spec.name, params=params)
        rate = LimitKey(key, spec.rate.limit, parse_duration(spec.rate.per), spec.rate.burst)
    return LineSpec(spec.queue_name, demand_of(spec), limit, rate)


def keyed(spec: JobSpec) -> bool:
    """Whether the executions of one job may belong to different lines."""
    limits = [spec.concurrency if not spec.ordered else None, spec.rate]
    return any(limit is not None and depends_on_params(limit.key) for limit in limits)
