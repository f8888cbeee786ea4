"""Promises as queries: each returns its offenders."""

from __future__ import annotations

from mainspring import wire
from mainspring.store.db import Connection
from mainspring.store.queries import q

CHECKS: dict[str, str] = {
    "invariant_i1": "I1 one execution per fire",
    "invariant_i4": "I4 never early",
    "invariant_i6": "I6 attempts are serial",
    "invariant_i9": "I9 running if and only if it has a session",
    "invariant_i15": "I15 limits and caps hold",
    "invariant_i16": "I16 nothing runs on a dead session",
    "invariant_i17": "I17 each shard has an owner",
    "invariant_i18": "I18 nothing waits while a fitting worker is idle",
    "invariant_i20": "I20 no row refers to another tenant",
    "due_waiting": "I2 nothing due is left waiting",
}


async def examine(connection: Connection) -> wire.Diagnosis:
    """Asks every promise."""
    checks: dict[str, str] = {}
    findings: list[wire.Finding] = []
    for name, title in CHECKS.items():
        rows = await connection.fetch(q(name))
        checks[title] = "ok" if not rows else f"{len(rows)} offenders"
        findings.extend(wire.Finding(check=title, offender=r["offender"], what=r["what"]) for r in rows)
    return wire.Diagnosis(healthy=not findings, checks=checks, findings=findings)
