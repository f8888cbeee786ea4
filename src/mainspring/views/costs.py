"""What executions used and cost, by tenant, queue and job, from hourly statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from mainspring import wire
from mainspring.calculation import calculated
from mainspring.clock import instant, millis
from mainspring.domain.costs import ALWAYS, MS_PER_HOUR, Prices, PriceWindows, units
from mainspring.domain.errors import invalid
from mainspring.domain.placement.resources import parse_amounts
from mainspring.domain.statistics import percentile
from mainspring.store import rollups
from mainspring.store.db import Database, database_now_ms
from mainspring.store.rollups import DemandTotals, JobTotals, QueueTotals, Totals

MAX_DAYS = 35
MAX_JOBS = 1_000
MAX_QUEUES = 1_000
"""Queues of a tenant whose percentiles are reported."""
MAX_DEMANDS = 3_000
"""Combinations of tenant, queue and resources that are priced; jobs rarely request more than a few."""


async def costs(
    database: Database,
    prices: Prices,
    *,
    windows: PriceWindows = ALWAYS,
    tenant: int,
    every_tenant: bool,
    days: float,
    jobs: int,
) -> wire.Costs:
    """The report of one tenant; with `every_tenant`, its list of tenants has all of them."""
    if not 0 < days <= MAX_DAYS:
        raise invalid("/days", f"days must be more than 0 and at most {MAX_DAYS}", hint="statistics are kept that long")
    if not 1 <= jobs <= MAX_JOBS:
        raise invalid("/jobs", f"jobs must be 1 to {MAX_JOBS}")
    root = database.root if every_tenant else database
    async with database.connection() as connection, root.connection() as wide:
        now_ms = int(await database_now_ms(connection))
        since = instant(now_ms) - timedelta(days=days)
        factors = _factors(windows, since, now_ms)
        demands = await rollups.usage_by_demand(
            connection, tenant=tenant, since=since, most=MAX_DEMANDS, factors=factors
        )
        found = await rollups.job_totals(connection, tenant=tenant, since=since, most=jobs, factors=factors)
        by_queue = await rollups.queue_totals(connection, tenant=tenant, since=since, most=MAX_QUEUES)
        everyone = demands
        if every_tenant:
            everyone = await rollups.usage_by_demand(wide, tenant=None, since=since, most=MAX_DEMANDS, factors=factors)
        _, until = await rollups.rollup_progress(connection)
    return await calculated(_report, (since, until), prices, demands, everyone, found, by_queue)


def _report(
    period: tuple[datetime, datetime],
    prices: Prices,
    demands: Sequence[DemandTotals],
    everyone: Sequence[DemandTotals],
    found: Sequence[JobTotals],
    by_queue: Mapping[str, QueueTotals],
) -> wire.Costs:
    """Prices thousands of combinations, each with as many resources as a job may request."""
    own = _priced(demands, prices)
    of_all = own if everyone is demands else _priced(everyone, prices)
    queues = [_with_percentiles(usage, by_queue) for usage in _by(own, lambda demand: demand.queue)]
    since, until = period
    return wire.Costs(
        since_at=since,
        until=until,
        currency=prices.currency,
        cost=sum(cost or 0.0 for _, cost in own) if prices.known else None,
        tenants=_by(of_all, lambda demand: demand.tenant),
        queues=queues,
        jobs=sorted((_of_job(job, prices) for job in found), key=lambda usage: (-(usage.cost or 0), -usage.run_hours)),
    )


def _factors(windows: PriceWindows, since: datetime, now_ms: int) -> dict[datetime, float]:
    """The price factors of the hours of a report."""
    begin_ms = millis(since) // MS_PER_HOUR * MS_PER_HOUR
    hours = windows.hours(begin_ms, (now_ms - begin_ms) // MS_PER_HOUR + 1)
    return {instant(at_ms): factor for at_ms, factor in hours.items()}


def _priced(demands: Sequence[DemandTotals], prices: Prices) -> list[tuple[DemandTotals, float | None]]:
    return [(demand, _cost(demand, prices) if prices.known else None) for demand in demands]


def _by(priced: Sequence[tuple[DemandTotals, float | None]], key: Callable[[DemandTotals], str]) -> list[wire.Usage]:
    groups: dict[str, list[tuple[DemandTotals, float | None]]] = {}
    for demand, cost in priced:
        groups.setdefault(key(demand), []).append((demand, cost))
    found = [
        _usage(
            name,
            [demand.totals for demand, _ in group],
            None if any(cost is None for _, cost in group) else sum(cost or 0.0 for _, cost in group),
            [(demand.totals.duration_ms, parse_amounts(demand.resources)) for demand, _ in group],
        )
        for name, group in groups.items()
    ]
    return sorted(found, key=lambda usage: (-(usage.cost or 0), -usage.run_hours, usage.name))


def _of_job(job: JobTotals, prices: Prices) -> wire.Usage:
    amounts = parse_amounts(job.spec.get("resources", {}))
    cost = prices.of(job.priced_ms, amounts) if prices.known else None
    return _usage(job.job, [job.totals], cost, [(job.totals.duration_ms, amounts)], job=job)


def _cost(demand: DemandTotals, prices: Prices) -> float:
    return prices.of(demand.priced_ms, parse_amounts(demand.resources))


Held = Sequence[tuple[int, Mapping[str, int]]]
"""For how many milliseconds which resources were held."""


def _usage(
    name: str, totals: Iterable[Totals], cost: float | None, held: Held, *, job: JobTotals | None = None
) -> wire.Usage:
    succeeded, failed, cancelled, skipped, duration_ms, wait_ms = (
        sum(column) for column in zip(*(_columns(t) for t in totals), strict=True)
    )
    ran = succeeded + failed
    return wire.Usage(
        name=name,
        executions=ran + cancelled,
        failed=failed,
        skipped=skipped,
        run_hours=duration_ms / 3_600_000,
        mean_ms=duration_ms / ran if ran else None,
        mean_wait_ms=wait_ms / ran if ran else None,
        cost=cost,
        resource_hours=_resource_hours(held),
        job_id=None if job is None else job.job_id,
        queue=None if job is None else job.queue,
    )


def _resource_hours(held: Held) -> dict[str, float]:
    """How long each resource was held, in the unit that has its price."""
    found: dict[str, float] = {}
    for duration_ms, amounts in held:
        for name, amount in amounts.items():
            found[name] = found.get(name, 0.0) + units(name, amount) * duration_ms / MS_PER_HOUR
    return dict(sorted(found.items()))


def _columns(t: Totals) -> tuple[int, ...]:
    return t.succeeded, t.failed, t.cancelled, t.skipped, t.duration_ms, t.wait_ms


def _with_percentiles(usage: wire.Usage, by_queue: Mapping[str, QueueTotals]) -> wire.Usage:
    if (known := by_queue.get(usage.name)) is None:
        return usage
    p50, p95, p99 = (percentile(known.counts, share) for share in (0.5, 0.95, 0.99))
    return msgspec.structs.replace(usage, p50_ms=p50, p95_ms=p95, p99_ms=p99)
