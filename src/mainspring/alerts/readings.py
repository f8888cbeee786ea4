"""Takes the readings that alert rules evaluate, from the database and from the figures of the processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from uuid import UUID

from mainspring.clock import instant
from mainspring.domain.alert import OPERATOR, Reading
from mainspring.domain.engines import engine_states
from mainspring.domain.schedule.deadline import DeadlineStatus
from mainspring.store import deadlines, measurements
from mainspring.store.db import Connection
from mainspring.store.jobs import JobRow
from mainspring.store.measurements import Durations, Figure

MIN_FOR_RATIO = 20
"""A ratio of fewer executions is not reported."""
MOST_NAMED = 3
MIN_RESULTS_FOR_STALE = 100
MIN_DURATIONS = (20, 50)
NOISE_MS = 10
MIN_GROWING_DEPTH = 100
GROWTH_SAMPLES = 6
DURATION_JOBS = 15
DURATION_KEPT_MS = 600_000
DURATION_EVERY_MS = 20_000
_ZERO = UUID(int=0)


class ReadingHistory:
    """Earlier readings that the next ones need. A new leader starts empty and catches up within a minute."""

    def __init__(self) -> None:
        self.depths: dict[tuple[int, str], deque[float]] = {}
        self.durations: dict[UUID, tuple[int, list[Reading]]] = {}
        self.duration_cursor = _ZERO
        self.durations_at = 0
        self.deadlines_at = 0
        self.deadlines: list[Reading] = []


async def take_readings(connection: Connection, history: ReadingHistory) -> tuple[int, list[Reading]]:
    """Return database time and all current readings."""
    seen = await measurements.readings(connection)
    now_ms, found = seen.now_ms, seen.figures
    readings = [reading for figure in found for reading in _of_figure(figure)]
    readings += _growth(history, found)
    readings += _of_processes(seen.processes)
    readings += await _durations(connection, history, now_ms)
    tenants = [f.tenant for f in found if f.condition == "watched" and f.tenant is not None]
    readings += await _deadlines(connection, history, tenants, now_ms)
    return now_ms, readings


def _of_figure(f: Figure) -> Iterator[Reading]:
    tenant = OPERATOR if f.tenant is None else f.tenant
    match f.condition:
        case "queue_depth":
            more = "more than " if f.value >= measurements.MAX_COUNTED else ""
            yield Reading(f.condition, tenant, f.value, f"{more}{f.value:,.0f} executions are queued in {f.key}", f.key)
        case "success_ratio" if (f.n or 0) >= MIN_FOR_RATIO:
            says = f"{f.value:.1%} of the latest {f.n:,} executions succeeded"
            yield Reading(f.condition, tenant, f.value, says)
        case "sla_ratio" if (f.n or 0) >= MIN_FOR_RATIO:
            says = f"{f.value:.1%} of the last hour's {f.n:,} fires with finish_by succeeded in time"
            yield Reading(f.condition, tenant, f.value, says)
        case "run_sla_ratio" if (f.n or 0) >= MIN_FOR_RATIO:
            says = f"{f.value:.1%} of the last day's {f.n:,} runs with an sla succeeded in time"
            yield Reading(f.condition, tenant, f.value, says)
        case "run_sla":
            runs = "1 run has" if f.n == 1 else f"{f.n:,} runs have"
            yield Reading(f.condition, tenant, f.value, f"{f.key}: {runs} not succeeded within the sla", f.key)
        case "start_by":
            yield Reading(f.condition, tenant, f.value, f"{f.key}: {f.n} fires did not start in time", f.key)
        case "schedule_too_costly":
            says = f"{f.key} is paused: its schedule exceeds the step budget"
            yield Reading(f.condition, tenant, f.value, says, f.key)
        case "shard_heartbeat":
            says = f"{f.n} shards have had no heartbeat for up to {f.value:.0f} s (owner: {f.about})"
            yield Reading(f.condition, tenant, f.value, says)
        case "channel_failing":
            says = f"channel {f.key} has failed for {f.value:.0f} s: {f.about}"
            yield Reading(f.condition, tenant, f.value, says, f.key)
        case "topic_lag":
            why = f": {f.about}" if f.about else ""
            yield Reading(f.condition, tenant, f.value, f"{f.value:,.0f} messages wait for trigger {f.key}{why}", f.key)
        case "output_quota":
            says = f"{f.value:.0%} of the output quota of today is used; output beyond it is cut"
            yield Reading(f.condition, tenant, f.value, says)
        case "dead_letters":
            more = "more than " if f.value >= measurements.MAX_COUNTED else ""
            yield Reading(f.condition, tenant, f.value, f"{more}{f.value:,.0f} open dead letters")


def _growth(history: ReadingHistory, found: Sequence[Figure]) -> list[Reading]:
    """Count for how many consecutive readings each queue has grown."""
    seen = {(f.tenant or OPERATOR, f.key): f.value for f in found if f.condition == "queue_depth"}
    history.depths = {key: history.depths.get(key, deque(maxlen=GROWTH_SAMPLES + 1)) for key in seen}
    readings = []
    for (tenant, queue), depth in seen.items():
        past = history.depths[tenant, queue]
        past.append(depth)
        samples = 0
        for later, earlier in zip(reversed(past), list(reversed(past))[1:], strict=False):
            if later <= earlier:
                break
            samples += 1
        if depth >= MIN_GROWING_DEPTH and samples:
            says = f"{queue} has grown steadily from {past[-1 - samples]:,.0f} to {depth:,.0f} queued executions"
            readings.append(Reading("queue_growth", tenant, samples, says, queue))
    return readings


def _of_processes(measured: Sequence[tuple[str, dict[str, float]]]) -> list[Reading]:
    readings = []
    # Every process sees the same stream.
    streamed = max((f.get("results_streamed", 0) for _, f in measured), default=0)
    pending = sum(f.get("results_pending", 0) for _, f in measured) + streamed
    readings.append(Reading("result_lag", OPERATOR, pending, f"{pending:,.0f} results are waiting to be settled"))
    event_lags = [f["events_waiting_s"] for _, f in measured if "events_waiting_s" in f]
    if event_lags:
        says = f"the oldest event has waited for {max(event_lags):,.0f} s for the event stream"
        readings.append(Reading("event_lag", OPERATOR, max(event_lags), says))
    readings += _false_locks(measured)
    stale, settled = sum(f.get("stale", 0) for _, f in measured), sum(f.get("settled", 0) for _, f in measured)
    if stale + settled >= MIN_RESULTS_FOR_STALE:
        ratio = stale / (stale + settled)
        says = f"{ratio:.2%} of {stale + settled:,.0f} results in five minutes were stale"
        readings.append(Reading("stale_ratio", OPERATOR, ratio, says))
    for condition, name, text in (
        ("shard_jobs", "shard_jobs", "a shard has {:,.0f} jobs ({})"),
        ("scheduling_latency", "scheduling_p95_s", "p95 scheduling latency is {:.3f} s ({})"),
        (
            "clock_skew",
            "clock_skew_s",
            "a clock differs from the database's by {:.1f} s; fires follow the database ({})",
        ),
    ):
        worst = max(((abs(f[name]), process) for process, f in measured if name in f), default=None)
        if worst is not None:
            readings.append(Reading(condition, OPERATOR, worst[0], text.format(*worst)))
    engines = list(engine_states(measured))
    if engines:
        lost = [state for state in engines if not state.up]
        says = "; ".join(map(str, lost[:MOST_NAMED])) + (
            f"; and {len(lost) - MOST_NAMED} more" if lost[MOST_NAMED:] else ""
        )
        readings.append(Reading("engine_lost", OPERATOR, len(lost), says or "every engine is connected"))
    return readings


def _false_locks(measured: Sequence[tuple[str, dict[str, float]]]) -> list[Reading]:
    found = [f["false_fire_locks"] for _, f in measured if "false_fire_locks" in f]
    says = (
        f"{sum(found):,.0f} false fire locks were ignored in five minutes: another client writes to the Redis of"
        " --fire-lock, or the database was restored; restrict access to keys mainspring-*"
    )
    return [Reading("false_fire_locks", OPERATOR, sum(found), says)] if found else []


async def _durations(connection: Connection, history: ReadingHistory, now_ms: int) -> list[Reading]:
    """Read a few jobs every other time; readings are kept until the job's next turn."""
    if now_ms - history.durations_at >= DURATION_EVERY_MS:
        history.durations_at = now_ms
        found = await measurements.durations(
            connection, now_ms=now_ms, after=history.duration_cursor, limit=DURATION_JOBS
        )
        history.duration_cursor = found[-1].job_id if len(found) == DURATION_JOBS else _ZERO
        for durations in found:
            history.durations[durations.job_id] = (now_ms, list(_of_durations(durations)))
        history.durations = {
            job: (at, kept) for job, (at, kept) in history.durations.items() if now_ms - at < DURATION_KEPT_MS
        }
    return [reading for _, kept in history.durations.values() for reading in kept]


def _of_durations(d: Durations) -> Iterator[Reading]:
    if d.n < MIN_DURATIONS[0] or d.n_before < MIN_DURATIONS[1]:
        return
    for name, now, before in zip(("p50", "p95", "p99"), d.p, d.p_before, strict=True):
        ratio = max(now, NOISE_MS) / max(before, NOISE_MS)
        says = f"{d.job}: {name} duration rose from {before:,.0f} to {now:,.0f} ms"
        yield Reading(f"duration_{name}", d.tenant, ratio, says, d.job)


async def _deadlines(
    connection: Connection, history: ReadingHistory, tenants: Sequence[int], now_ms: int
) -> list[Reading]:
    """Evaluate deadlines job by job in Python, for a tenth of the time at most: when slow, it runs less often."""
    if now_ms >= history.deadlines_at:
        history.deadlines = [
            _of_deadline(row, judged, tenant)
            for tenant in tenants
            for row, judged in await deadlines.missed(connection, tenant=tenant, now_ms=now_ms)
        ]
    return history.deadlines


def _of_deadline(row: JobRow, judged: DeadlineStatus, tenant: int) -> Reading:
    at = "" if judged.at_ms is None else f", expected by {instant(judged.at_ms):%Y-%m-%d %H:%M:%S} UTC"
    return Reading(judged.kind, tenant, 1.0, f"{row.name} has not succeeded{at} ({judged.kind})", row.name)
