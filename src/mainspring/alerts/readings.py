"""What one look sees: figures of the database and of the processes, as readings that rules judge."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from uuid import UUID

from mainspring.clock import instant
from mainspring.domain.alert import Reading
from mainspring.domain.schedule.deadline import DeadlineStatus
from mainspring.store import deadlines, measurements
from mainspring.store.db import Connection
from mainspring.store.jobs import JobRow
from mainspring.store.measurements import Durations, Figure

OPERATOR = 1
"""The tenant that hears of what belongs to the whole system."""
LEAST_RATIO = 20
"""Of fewer executions or results no ratio is made."""
LEAST_STALE = 100
LEAST_DURATIONS = (20, 50)
NOISE_MS = 10
GROWS_FROM = 100
GROWTH_LOOKS = 6
DURATION_JOBS = 15
DURATION_KEPT_MS = 600_000
DURATION_EVERY_MS = 20_000
_ZERO = UUID(int=0)


class Memory:
    """What a look needs of those before it. A new leader begins without, and knows it all a minute later."""

    def __init__(self) -> None:
        self.depths: dict[tuple[int, str], deque[float]] = {}
        self.durations: dict[UUID, tuple[int, list[Reading]]] = {}
        self.duration_cursor = _ZERO
        self.durations_at = 0
        self.deadlines_at = 0
        self.deadlines: list[Reading] = []


async def look(connection: Connection, memory: Memory) -> tuple[int, list[Reading]]:
    """Database time, and everything that can be measured now."""
    seen = await measurements.readings(connection)
    now_ms, found = seen.now_ms, seen.figures
    readings = [reading for figure in found for reading in _of_figure(figure)]
    readings += _growth(memory, found)
    readings += _of_processes(seen.processes)
    readings += await _durations(connection, memory, now_ms)
    tenants = [f.tenant for f in found if f.condition == "watched" and f.tenant is not None]
    readings += await _deadlines(connection, memory, tenants, now_ms)
    return now_ms, readings


def _of_figure(f: Figure) -> Iterator[Reading]:
    tenant = OPERATOR if f.tenant is None else f.tenant
    match f.condition:
        case "queue_depth":
            more = "more than " if f.value >= measurements.DEEP else ""
            yield Reading(f.condition, tenant, f.value, f"{more}{f.value:,.0f} executions wait in {f.key}", f.key)
        case "success_ratio" if (f.n or 0) >= LEAST_RATIO:
            says = f"{f.value:.1%} of the latest {f.n:,} executions succeeded"
            yield Reading(f.condition, tenant, f.value, says)
        case "sla_ratio" if (f.n or 0) >= LEAST_RATIO:
            says = f"{f.value:.1%} of the last hour's {f.n:,} fires with finish_by succeeded in time"
            yield Reading(f.condition, tenant, f.value, says)
        case "run_sla_ratio" if (f.n or 0) >= LEAST_RATIO:
            says = f"{f.value:.1%} of the last day's {f.n:,} runs with an sla succeeded in time"
            yield Reading(f.condition, tenant, f.value, says)
        case "run_sla":
            runs = "1 run has" if f.n == 1 else f"{f.n:,} runs have"
            yield Reading(f.condition, tenant, f.value, f"{f.key}: {runs} not succeeded within the sla", f.key)
        case "start_by":
            yield Reading(f.condition, tenant, f.value, f"{f.key}: {f.n} fires did not start in time", f.key)
        case "shard_heartbeat":
            says = f"{f.n} shards have not been heard of for up to {f.value:.0f} s (owner: {f.about})"
            yield Reading(f.condition, tenant, f.value, says)
        case "channel_failing":
            says = f"channel {f.key} has taken nothing for {f.value:.0f} s: {f.about}"
            yield Reading(f.condition, tenant, f.value, says, f.key)
        case "dead_letters":
            more = "more than " if f.value >= measurements.DEEP else ""
            yield Reading(f.condition, tenant, f.value, f"{more}{f.value:,.0f} dead letters wait for a person")


def _growth(memory: Memory, found: Sequence[Figure]) -> list[Reading]:
    """How many looks in a row each queue has grown."""
    seen = {(f.tenant or OPERATOR, f.key): f.value for f in found if f.condition == "queue_depth"}
    memory.depths = {key: memory.depths.get(key, deque(maxlen=GROWTH_LOOKS + 1)) for key in seen}
    readings = []
    for (tenant, queue), depth in seen.items():
        past = memory.depths[tenant, queue]
        past.append(depth)
        looks = 0
        for later, earlier in zip(reversed(past), list(reversed(past))[1:], strict=False):
            if later <= earlier:
                break
            looks += 1
        if depth >= GROWS_FROM and looks:
            says = f"{queue} has grown from {past[-1 - looks]:,.0f} to {depth:,.0f} executions, without a pause"
            readings.append(Reading("queue_growth", tenant, looks, says, queue))
    return readings


def _of_processes(measured: Sequence[tuple[str, dict[str, float]]]) -> list[Reading]:
    readings = []
    pending = sum(f.get("results_pending", 0) for _, f in measured)
    readings.append(Reading("result_lag", OPERATOR, pending, f"{pending:,.0f} results wait to be settled"))
    stale, settled = sum(f.get("stale", 0) for _, f in measured), sum(f.get("settled", 0) for _, f in measured)
    if stale + settled >= LEAST_STALE:
        ratio = stale / (stale + settled)
        says = f"{ratio:.2%} of {stale + settled:,.0f} results in five minutes were stale"
        readings.append(Reading("stale_ratio", OPERATOR, ratio, says))
    for condition, name, text in (
        ("shard_jobs", "shard_jobs", "a shard has {:,.0f} jobs ({})"),
        ("scheduling_latency", "scheduling_p95_s", "from due to queued up to {:.3f} s ({})"),
        ("clock_skew", "clock_skew_s", "a clock is {:.1f} s away from the database's; fires follow that one ({})"),
    ):
        worst = max(((abs(f[name]), who) for who, f in measured if name in f), default=None)
        if worst is not None:
            readings.append(Reading(condition, OPERATOR, worst[0], text.format(*worst)))
    return readings


async def _durations(connection: Connection, memory: Memory, now_ms: int) -> list[Reading]:
    """Some jobs in a turn, every other look; what was found is held until it is a job's turn again."""
    if now_ms - memory.durations_at >= DURATION_EVERY_MS:
        memory.durations_at = now_ms
        found = await measurements.durations(
            connection, now_ms=now_ms, after=memory.duration_cursor, limit=DURATION_JOBS
        )
        memory.duration_cursor = found[-1].job_id if len(found) == DURATION_JOBS else _ZERO
        for durations in found:
            memory.durations[durations.job_id] = (now_ms, list(_of_durations(durations)))
        memory.durations = {
            job: (at, kept) for job, (at, kept) in memory.durations.items() if now_ms - at < DURATION_KEPT_MS
        }
    return [reading for _, kept in memory.durations.values() for reading in kept]


def _of_durations(d: Durations) -> Iterator[Reading]:
    if d.n < LEAST_DURATIONS[0] or d.n_before < LEAST_DURATIONS[1]:
        return
    for name, now, before in zip(("p50", "p95", "p99"), d.p, d.p_before, strict=True):
        ratio = max(now, NOISE_MS) / max(before, NOISE_MS)
        says = f"{d.job}: {name} of the duration went from {before:,.0f} to {now:,.0f} ms"
        yield Reading(f"duration_{name}", d.tenant, ratio, says, d.job)


async def _deadlines(connection: Connection, memory: Memory, tenants: Sequence[int], now_ms: int) -> list[Reading]:
    """Judged in Python, job by job: where that takes long it is done less often, at most a tenth of the time."""
    if now_ms >= memory.deadlines_at:
        memory.deadlines = [
            _of_deadline(row, judged, tenant)
            for tenant in tenants
            for row, judged in await deadlines.missed(connection, tenant=tenant, now_ms=now_ms)
        ]
    return memory.deadlines


def _of_deadline(row: JobRow, judged: DeadlineStatus, tenant: int) -> Reading:
    at = "" if judged.at_ms is None else f", expected by {instant(judged.at_ms):%Y-%m-%d %H:%M:%S} UTC"
    return Reading(judged.kind, tenant, 1.0, f"{row.name} has not succeeded{at} ({judged.kind})", row.name)
