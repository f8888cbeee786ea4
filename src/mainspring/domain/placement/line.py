"""Where an execution waits: its queue, what it asks of a worker, and the keys it is limited by. Pure."""

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

AGING_MS = 900_000
"""One level of priority is worth this much waiting: a higher one overtakes all that has not waited so much longer, and
nothing waits for ever. The statements that queue executions compute rank = due time - priority x this."""


@dataclass(frozen=True, slots=True)
class Key:
    """A concurrency key, or a rate key (`per_s` is set)."""

    key: str
    most: int
    per_s: float | None = None
    burst: int = 1


@dataclass(frozen=True, slots=True)
class LineSpec:
    queue: str
    demand: Demand
    limit: Key | None = None
    rate: Key | None = None


def demand_of(spec: JobSpec) -> Demand:
    labels = sandbox_labels(spec.sandbox) | spec.labels if spec.sandbox is not None else spec.labels
    return Demand(spec.kind, labels, parse_amounts(spec.resources), spec.exclusive)


def line_of(spec: JobSpec, *, job_id: UUID, params: Mapping[str, Any] | None = None) -> LineSpec:
    """The line of an execution with these params; fires of a schedule have none."""
    limit = rate = None
    if spec.ordered:
        # One at a time, lowest rank first, is in order.
        limit = Key(f"order {job_id}", 1)
    elif spec.concurrency is not None:
        key = resolve_key(spec.concurrency.key, job=spec.name, params=params)
        limit = Key(key, spec.concurrency.limit)
    if spec.rate is not None:
        key = resolve_key(spec.rate.key, job=spec.name, params=params)
        rate = Key(key, spec.rate.limit, parse_duration(spec.rate.per), spec.rate.burst)
    return LineSpec(spec.queue_name, demand_of(spec), limit, rate)


def keyed(spec: JobSpec) -> bool:
    """Whether executions of one job may wait in different lines."""
    limits = [spec.concurrency if not spec.ordered else None, spec.rate]
    return any(limit is not None and depends_on_params(limit.key) for limit in limits)
