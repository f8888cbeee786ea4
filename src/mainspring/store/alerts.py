"""Alert rules, and the alerts they raise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from mainspring import ports, wire
from mainspring.clock import millis
from mainspring.domain.alert import Breach, OpenAlert, Rule
from mainspring.store.db import Connection
from mainspring.store.hints import hint
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class AlertRow:
    alert_id: UUID
    tenant: int
    rule: str
    key: str
    severity: str
    state: str
    value: float
    threshold: float
    summary: str
    since_at: datetime
    fired_at: datetime | None
    told_at: datetime | None
    resolved_at: datetime | None


async def all_rules(connection: Connection) -> dict[int, dict[str, Rule]]:
    """Over all tenants: the leader evaluates the rules of all."""
    found: dict[int, dict[str, Rule]] = {}
    for r in await connection.fetch(q("all_rules")):
        found.setdefault(r["tenant_id"], {})[r["name"]] = msgspec.convert(r["rule"], Rule)
    return found


@dataclass(frozen=True, slots=True)
class SeenRule:
    """The state of a rule that an editor saw: when it was written; None for a built-in one without changes."""

    updated_at: datetime | None


async def tenant_rules(connection: Connection, *, tenant: int) -> dict[str, tuple[Rule, datetime, str]]:
    rows = await connection.fetch(q("tenant_rules"), tenant)
    return {r["name"]: (msgspec.convert(r["rule"], Rule), r["updated_at"], r["updated_by"]) for r in rows}


async def upsert_rule(
    connection: Connection, *, tenant: int, name: str, rule: Rule, by: str, seen: SeenRule | None = None
) -> bool:
    """Write a rule; with `seen`, only if it has not changed since. Return whether it was written."""
    updated_at = None if seen is None else seen.updated_at
    hint(connection, ports.CHANNELS)
    row = await connection.fetchrow(q("upsert_rule"), tenant, name, rule, by, seen is not None, updated_at)
    return row is not None


async def delete_rule(connection: Connection, *, tenant: int, name: str) -> bool:
    hint(connection, ports.CHANNELS)
    return await connection.fetchrow(q("delete_rule"), tenant, name) is not None


async def open_alerts(connection: Connection) -> list[OpenAlert]:
    """Over all tenants: a leader duty."""
    return [
        OpenAlert(r["tenant_id"], r["rule"], r["key"], r["state"], millis(r["since_at"]))
        for r in await connection.fetch(q("open_alerts"))
    ]


async def raise_alerts(connection: Connection, *, ids: Sequence[UUID], broken: Sequence[Breach]) -> list[AlertRow]:
    rows = await connection.fetch(
        q("raise_alerts"),
        ids,
        [b.tenant for b in broken],
        [b.name for b in broken],
        [b.reading.key for b in broken],
        [b.rule.severity for b in broken],
        [b.state for b in broken],
        [b.reading.value for b in broken],
        [b.rule.threshold for b in broken],
        [b.reading.says for b in broken],
    )
    return [_row(r) for r in rows]


async def drop_pending(connection: Connection, *, over: Sequence[OpenAlert]) -> None:
    await connection.execute(q("drop_pending"), *_keys(over))


async def resolve_alerts(connection: Connection, *, over: Sequence[OpenAlert]) -> list[AlertRow]:
    return [_row(r) for r in await connection.fetch(q("resolve_alerts"), *_keys(over))]


async def mark_notified(connection: Connection, *, alert_id: UUID) -> bool:
    return await connection.fetchval(q("mark_notified"), alert_id) is not None


async def list_alerts(
    connection: Connection, *, tenant: int, before: UUID, limit: int, state: str | None = None
) -> list[wire.Alert]:
    return [
        wire.Alert(
            alert_id=r["alert_id"],
            rule=r["rule"],
            key=r["key"],
            severity=r["severity"],
            state=r["state"],
            value=r["value"],
            threshold=r["threshold"],
            summary=r["summary"],
            since_at=r["since_at"],
            fired_at=r["fired_at"],
            told_at=r["told_at"],
            resolved_at=r["resolved_at"],
        )
        for r in await connection.fetch(q("list_alerts"), tenant, before, limit, state)
    ]


async def firing_counts(connection: Connection, *, tenant: int | None) -> dict[str, int]:
    return {r["severity"]: r["n"] for r in await connection.fetch(q("firing_counts"), tenant)}


async def firing_count(connection: Connection, *, tenant: int) -> int:
    return int(await connection.fetchval(q("firing_count"), tenant))


async def forget_alerts(connection: Connection, *, limit: int) -> None:
    await connection.execute(q("forget_alerts"), limit)


def _keys(over: Sequence[OpenAlert]) -> tuple[list[int], list[str], list[str]]:
    return [o.tenant for o in over], [o.rule for o in over], [o.key for o in over]


def _row(r: Any) -> AlertRow:
    return AlertRow(
        r["alert_id"],
        r["tenant_id"],
        r["rule"],
        r["key"],
        r["severity"],
        r["state"],
        r["value"],
        r["threshold"],
        r["summary"],
        r["since_at"],
        r["fired_at"],
        r["told_at"],
        r["resolved_at"],
    )
