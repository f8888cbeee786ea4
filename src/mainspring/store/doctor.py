"""Promises as queries: each returns its offenders."""

from __future__ import annotations

from mainspring import wire
from mainspring.store.db import Connection
from mainspring.store.queries import q
from mainspring.zones import rules_version

LOOKED = 2_000
"""So many of the newest each promise about history is asked of, unless all is."""
PATIENCE_S = 600.0
BOUNDED = frozenset(f"invariant_{name}" for name in ("i1", "i4", "i6", "i14", "i20", "i21"))
CHECKS: dict[str, str] = {
    "invariant_i1": "I1 one execution per fire",
    "invariant_i2": "I2 nothing due stays undecided",
    "invariant_i4": "I4 never early",
    "invariant_i6": "I6 attempts are serial",
    "invariant_i9": "I9 running if and only if it has a session",
    "invariant_i13": "I13 what runs count is what there is",
    "invariant_i14": "I14 what failed for good has one dead letter, and nothing else has",
    "invariant_i21": "I21 a run is open while a step of it is",
    "invariant_i15": "I15 limits and caps hold",
    "invariant_i16": "I16 nothing runs on a dead session",
    "invariant_i17": "I17 each shard has an owner",
    "invariant_i18": "I18 nothing waits while a fitting worker is idle",
    "invariant_i20": "I20 no row refers to another tenant",
    "due_waiting": "I2 nothing due is left waiting",
    "overdue_starts": "what did not start in time is skipped",
    "overlong_pauses": "pauses end when they should",
    "needs_of_the_deleted": "no job waits for one that was deleted",
    "overfed_backfills": "I15 no backfill has more live executions than it may",
}


async def examine(connection: Connection, *, everything: bool = False) -> wire.Diagnosis:
    """Asks every promise: of the newest executions, or of everything there is, which takes as long as that is large."""
    looked = None if everything else LOOKED
    checks: dict[str, str] = {}
    findings: list[wire.Finding] = []
    for name, title in CHECKS.items():
        rows = await connection.fetch(q(name), *([looked] if name in BOUNDED else []), timeout=PATIENCE_S)
        checks[title] = "ok" if not rows else f"{len(rows)} offenders"
        findings.extend(wire.Finding(check=title, offender=r["offender"], what=r["what"]) for r in rows)
    return wire.Diagnosis(
        healthy=not findings,
        checks=checks,
        findings=findings,
        tzdata=rules_version(),
        notes=await _zone_notes(connection),
    )


async def _zone_notes(connection: Connection) -> list[str]:
    """Coming fires follow the rules this server has; times that were computed when a job was saved do not."""
    return [
        f"{r['jobs']:,} job{'' if r['jobs'] == 1 else 's'} saved under time zone rules {r['tzdata']},"
        f" this server has {rules_version()}: save again those whose start, end or one-time instant may have moved"
        for r in await connection.fetch(q("saved_under_other_rules"), rules_version())
    ]
