"""The doctor: invariants of the data as queries that return violations."""

from __future__ import annotations

from mainspring import wire
from mainspring.store.db import Connection, Database
from mainspring.store.queries import q
from mainspring.store.secret_fields import count_plain
from mainspring.zones import rules_version

NEWEST_CHECKED = 2_000
"""Checks of history look at this many of the newest executions, unless all are asked for."""
QUERY_TIMEOUT_S = 600.0
BOUNDED = frozenset(f"invariant_{name}" for name in ("i1", "i4", "i6", "i14", "i19", "i20", "i21"))
OF_NO_TENANT = frozenset(("firing_held", "invariant_i2", "invariant_i17"))
AUDIT_CHECK = "I19 the hash chains of the audit log are unbroken"
CHECKS: dict[str, str] = {
    "firing_held": "firing is not held",
    "invariant_i1": "I1 one execution per fire",
    "invariant_i2": "I2 every due fire is decided",
    "invariant_i4": "I4 no execution starts early",
    "invariant_i6": "I6 attempts of an execution do not overlap",
    "invariant_i9": "I9 an execution is running if and only if it has a session",
    "invariant_i13": "I13 run counters match their steps",
    "invariant_i14": "I14 each permanent failure has exactly one dead letter",
    "invariant_i21": "I21 a run is open while one of its steps is",
    "invariant_i15": "I15 limits and queue caps hold",
    "invariant_i16": "I16 no execution is running on an expired session",
    "invariant_i17": "I17 each shard has an owner",
    "invariant_i18": "I18 no execution waits while a matching worker is idle",
    "invariant_i19": AUDIT_CHECK,
    "invariant_i20": "I20 no row refers to another tenant",
    "due_waiting": "I2 every due execution is queued",
    "overdue_starts": "executions past start_by are skipped",
    "overlong_pauses": "pauses end on time",
    "needs_of_the_deleted": "no job depends on a deleted job",
    "overfed_backfills": "I15 backfills respect their concurrency",
}


async def examine(connection: Connection, *, tenant: int | None = None, everything: bool = False) -> wire.Diagnosis:
    """Run every check on the newest executions, or on all history, which takes time in proportion to its size.

    With `tenant`, only what that tenant has is found.
    """
    limit = None if everything else NEWEST_CHECKED
    checks: dict[str, str] = {}
    findings: list[wire.Finding] = []
    for name, title in CHECKS.items():
        rows = await connection.fetch(q(name), *_parameters(name, limit, tenant), timeout=QUERY_TIMEOUT_S)
        checks[title] = "ok" if not rows else f"{len(rows)} violations"
        findings.extend(wire.Finding(check=title, offender=r["offender"], what=r["what"]) for r in rows)
    return wire.Diagnosis(
        healthy=not findings,
        checks=checks,
        findings=findings,
        tzdata=rules_version(),
        notes=[
            *await _zone_notes(connection, tenant=tenant),
            *await _secret_notes(connection, tenant=tenant),
            *([] if tenant is not None else await _archive_notes(connection)),
        ],
    )


async def check_within(
    database: Database, name: str, *, timeout_s: float, tenant: int | None = None
) -> list[wire.Finding] | None:
    """Run one check on the newest executions of one tenant, or of all; None if it takes longer: then it is cancelled.

    Checks of what belongs to no tenant find the same for all.
    """
    try:
        async with database.connection() as connection:
            rows = await connection.fetch(q(name), *_parameters(name, NEWEST_CHECKED, tenant), timeout=timeout_s)
    except TimeoutError:
        return None
    return [wire.Finding(check=CHECKS[name], offender=r["offender"], what=r["what"]) for r in rows]


def _parameters(name: str, limit: int | None, tenant: int | None) -> list[int | None]:
    return [*([limit] if name in BOUNDED else []), *([tenant] if name not in OF_NO_TENANT else [])]


async def _zone_notes(connection: Connection, *, tenant: int | None) -> list[str]:
    """Notes on jobs saved under other time zone rules: their stored start, end and one-time instants may have moved."""
    return [
        f"{r['jobs']:,} job{'' if r['jobs'] == 1 else 's'} saved under time zone rules {r['tzdata']},"
        f" this server has {rules_version()}: save them again if their start, end or one-time instant may have moved"
        for r in await connection.fetch(q("saved_under_other_rules"), rules_version(), tenant)
    ]


async def _archive_notes(connection: Connection) -> list[str]:
    """Warnings about days that could not be archived: their rows stay in the database."""
    return [
        f"{'history' if r['parent'] == 'history' else 'output'} of {r['day']} could not be archived and stays in the"
        f" database: {r['error']}"
        for r in await connection.fetch(q("failed_archives"))
    ]


async def _secret_notes(connection: Connection, *, tenant: int | None) -> list[str]:
    """A warning if secrets of channels or triggers are in plain text."""
    plain = await count_plain(connection, tenant=tenant)
    if not plain:
        return []
    what = (
        "1 channel or trigger has its secret" if plain == 1 else f"{plain:,} channels and triggers have their secrets"
    )
    return [f"{what} in plain text: start the servers with --secret-key-file, or run mainspring secrets encrypt"]
