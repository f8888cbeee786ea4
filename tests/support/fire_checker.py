"""An independent check of fires: computes which should exist and compares them with the database.

Shares no code with the engine. Jobs under test fire at the multiples of a number of seconds that stands in their name
(`job-3-017`: every three seconds), so the oracle needs a division and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from tests.support.figures import record

JOBS = "SELECT job_id, name, shard, active_from, paused_at FROM jobs"
FIRES = "SELECT job_id, fire_at, queued_at, state, reason, fires FROM all_executions WHERE trigger = 'fire'"
SHARDS = "SELECT shard, watermark, epoch FROM shards"


@dataclass(frozen=True)
class Fire:
    """One decided instant, in seconds of the epoch; `queued_s` is None if it did not run."""

    job: UUID
    shard: int
    at_s: int
    queued_s: float | None

    @property
    def late_s(self) -> float:
        return 0.0 if self.queued_s is None else self.queued_s - self.at_s


@dataclass
class Verdict:
    """The result of a check; the lists have the violations."""

    since_s: float = 0.0
    fires: list[Fire] = field(default_factory=list)
    missed: list[tuple[str, int]] = field(default_factory=list)
    doubled: list[tuple[str, int]] = field(default_factory=list)
    invented: list[tuple[str, int]] = field(default_factory=list)
    early: list[Fire] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return bool(self.fires) and not (self.missed or self.doubled or self.invented or self.early)

    def figures(self, **more: Any) -> dict[str, Any]:
        late = sorted(f.late_s for f in self.fires if f.queued_s is not None and f.at_s >= self.since_s)
        return {
            "fires": len(self.fires),
            "missed": len(self.missed),
            "doubled": len(self.doubled),
            "invented": len(self.invented),
            "early": len(self.early),
            "late_p50_s": round(late[len(late) // 2], 3) if late else None,
            "late_p99_s": round(late[int(len(late) * 0.99)], 3) if late else None,
            "late_max_s": round(late[-1], 3) if late else None,
            **more,
        }

    def demand(self, what: str, **more: Any) -> None:
        """Print the figures as one line, then assert that no fire is missing, doubled, unexpected or early."""
        record(what, timeline=self.timeline(), **self.figures(**more))
        offenders = [self.missed[:5], self.doubled[:5], self.invented[:5], self.early[:5]]
        assert self.clean, f"missed, doubled, invented, early: {offenders}"

    def timeline(self) -> list[tuple[int, int, float]]:
        """Return for each second since the start: its number, its fires, and the lateness of the latest."""
        seconds: dict[int, list[float]] = {}
        for fire in self.fires:
            if fire.queued_s is not None and fire.at_s >= self.since_s:
                seconds.setdefault(fire.at_s, []).append(fire.late_s)
        first = min(seconds, default=0)
        return [(at - first, len(late), round(max(late), 3)) for at, late in sorted(seconds.items())]

    def first_after(self, moment_s: float, shards: Iterable[int]) -> dict[int, float]:
        """Return for each shard how long after a moment its first fire was decided."""
        wanted, first = set(shards), dict[int, float]()
        for fire in self.fires:
            if fire.shard in wanted and fire.queued_s is not None and fire.queued_s > moment_s:
                first[fire.shard] = min(first.get(fire.shard, float("inf")), fire.queued_s - moment_s)
        return first

    def late_between(self, start_s: float, end_s: float, shards: Iterable[int]) -> list[float]:
        """Return the sorted lateness of the fires of these shards in a window."""
        wanted = set(shards)
        return sorted(f.late_s for f in self.fires if f.shard in wanted and start_s <= f.at_s < end_s)


def multiples(every_s: int, after: datetime, upto: datetime) -> set[int]:
    """Return the instants in (after, upto]."""
    first = int(after.timestamp() // every_s + 1) * every_s
    return set(range(first, int(upto.timestamp() // every_s) * every_s + 1, every_s))


def interval_in_name(name: str) -> int:
    return int(name.split("-")[1])


async def judge(
    url: str, *, every_s: Callable[[str], int] = interval_in_name, since_s: float = 0.0, prefix: str = ""
) -> Verdict:
    """Of one snapshot: every instant up to a shard's watermark, or a job's pause, is there once; beyond it, none.

    Jobs whose name does not begin with `prefix` are left out.

    Lateness is told of fires since a time only; before it there was no scheduler.
    """
    connection = await asyncpg.connect(url, server_settings={"search_path": "mainspring", "timezone": "UTC"})
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            jobs = [job for job in await connection.fetch(JOBS) if job["name"].startswith(prefix)]
            known = {job["job_id"] for job in jobs}
            rows = [row for row in await connection.fetch(FIRES) if row["job_id"] in known]
            watermarks = {r["shard"]: r["watermark"] for r in await connection.fetch(SHARDS)}
    finally:
        await connection.close()
    return compare(Verdict(since_s), jobs, rows, watermarks, every_s)


def compare(
    verdict: Verdict,
    jobs: list[Any],
    rows: list[Any],
    watermarks: dict[int, datetime],
    every_s: Callable[[str], int],
) -> Verdict:
    shard_of = {job["job_id"]: job["shard"] for job in jobs}
    found: dict[UUID, Counter[int]] = {job["job_id"]: Counter() for job in jobs}
    every = {job["job_id"]: every_s(job["name"]) for job in jobs}
    for row in rows:
        job, at_s = row["job_id"], round(row["fire_at"].timestamp())
        queued_s = None if row["queued_at"] is None else row["queued_at"].timestamp()
        fire = Fire(job, shard_of[job], at_s, queued_s)
        verdict.fires.append(fire)
        if queued_s is not None and queued_s < at_s:
            verdict.early.append(fire)
        for n in range(row["fires"]):  # a skipped row may stand for several instants
            found[job][at_s - n * every[job]] += 1
    for job in jobs:
        job_id, name = job["job_id"], job["name"]
        upto = job["paused_at"] or watermarks[job["shard"]]
        wanted = multiples(every[job_id], job["active_from"], upto)
        verdict.missed += [(name, at) for at in sorted(wanted - found[job_id].keys())]
        verdict.invented += [(name, at) for at in sorted(found[job_id].keys() - wanted)]
        verdict.doubled += [(name, at) for at, n in found[job_id].items() if n > 1]
    return verdict
