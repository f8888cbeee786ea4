"""Figures that alert rules evaluate: of the tables, and those published by processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

import msgspec

from mainspring.store.db import Connection
from mainspring.store.queries import q

SAMPLE_EXECUTIONS = 5_000
ACTIVE_EXECUTIONS = 2_000
MAX_DEADLINE_JOBS = 250
MAX_COUNTED = 10_001
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure; `tenant` is None if it concerns the whole system."""

    condition: str
    tenant: int | None
    key: str
    value: float
    n: int | None
    about: str | None


@dataclass(frozen=True, slots=True)
class Readings:
    """Database time, figures of the tables, and the published figures by process."""

    now_ms: int
    figures: list[Figure]
    processes: list[tuple[str, dict[str, float]]]


@dataclass(frozen=True, slots=True)
class Durations:
    """Percentiles (50, 95, 99) of a job's latest durations in milliseconds, and of those before."""

    job_id: UUID
    tenant: int
    job: str
    n: int
    n_before: int
    p: list[float]
    p_before: list[float]


async def write_measurement(
    connection: Connection, *, process_id: UUID, name: str, figures: Mapping[str, float]
) -> None:
    await connection.execute(q("write_measurement"), process_id, name, dict(figures))


async def readings(connection: Connection) -> Readings:
    """Over all tenants: a leader duty. One statement, so that an idle system pays almost nothing."""
    rows = await connection.fetch(q("readings"), SAMPLE_EXECUTIONS, MAX_DEADLINE_JOBS, MAX_COUNTED)
    return Readings(
        next(int(r["value"] * 1000) for r in rows if r["condition"] == "time"),
        [
            Figure(r["condition"], r["tenant_id"], r["key"], r["value"], r["n"], r["about"])
            for r in rows
            if r["condition"] not in ("time", "process")
        ],
        [(r["key"], msgspec.json.decode(r["about"])) for r in rows if r["condition"] == "process"],
    )


async def durations(connection: Connection, *, now_ms: int, after: UUID, limit: int) -> list[Durations]:
    """Over all tenants: a leader duty."""
    rows = await connection.fetch(q("durations"), _lowest(now_ms - HOUR_MS), after, limit, ACTIVE_EXECUTIONS)
    return [
        Durations(r["job_id"], r["tenant_id"], r["name"], r["n"], r["n_before"], r["p"] or [], r["p_before"] or [])
        for r in rows
    ]


def _lowest(ms: int) -> UUID:
    """Return the lowest id an execution of that instant can have."""
    return UUID(int=max(0, ms) << 80)
