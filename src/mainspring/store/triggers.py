"""Triggers, and the deliveries that reached them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from mainspring import ports
from mainspring.domain.trigger import CompletionSource, DeliveryOutcome, TriggerSpec, kind_of
from mainspring.store.db import Connection
from mainspring.store.hints import hint
from mainspring.store.queries import q
from mainspring.store.secret_fields import SecretFields

LAST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    delivery_id: int
    key: str
    event: str | None
    outcome: DeliveryOutcome
    reason: str | None
    execution_id: UUID | None
    params: dict[str, Any] | None
    repeats: int
    received_at: datetime


@dataclass(frozen=True, slots=True)
class WatchState:
    """The last look of a trigger that watches files or reads a topic; `error` is what it could not read."""

    looked_at: datetime | None
    next_look_at: datetime
    error: str | None
    error_at: datetime | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class TriggerRow:
    trigger_id: UUID
    tenant: int
    name: str
    kind: str
    spec: TriggerSpec
    secrets: SecretFields
    version: int
    created_at: datetime
    created_by: str
    updated_at: datetime
    paused_at: datetime | None
    pause_reason: str | None
    last_rejected_at: datetime | None
    last_rejection: str | None
    last_delivery: DeliveryRow | None = None
    watch: WatchState | None = None


async def insert_trigger(
    connection: Connection,
    *,
    tenant: int,
    trigger_id: UUID,
    name: str,
    spec: TriggerSpec,
    secrets: SecretFields,
    by: str,
    most: int,
    most_files: int,
    most_topics: int,
) -> bool:
    """Insert a trigger; False if the tenant has `most` already, or `most_files` or `most_topics` of these kinds."""
    row = await connection.fetchrow(
        q("insert_trigger"),
        trigger_id,
        tenant,
        name,
        kind_of(spec),
        *_columns(spec),
        *secrets.columns(),
        most,
        by,
        most_files,
        most_topics,
    )
    hint(connection, ports.TRIGGERS, ports.EDIT)
    return row is not None


async def list_triggers(
    connection: Connection,
    *,
    tenant: int,
    after: str = "",
    limit: int,
    job: str | None = None,
    kind: str | None = None,
) -> list[TriggerRow]:
    return [trigger_row(r) for r in await connection.fetch(q("list_triggers"), tenant, after, limit, job, kind)]


async def triggers_named(connection: Connection, *, tenant: int, names: Sequence[str]) -> list[TriggerRow]:
    return [trigger_row(r) for r in await connection.fetch(q("triggers_named"), tenant, list(names))]


async def trigger_by_id(connection: Connection, *, trigger_id: UUID) -> tuple[TriggerRow, float] | None:
    """Return a trigger of any tenant, and the time in seconds: the address of a webhook has no tenant."""
    row = await connection.fetchrow(q("trigger_by_id"), trigger_id)
    return None if row is None else (trigger_row(row, delivery=False), row["now_s"])


async def lock_trigger(connection: Connection, *, tenant: int, name: str) -> TriggerRow | None:
    row = await connection.fetchrow(q("lock_trigger"), tenant, name)
    return None if row is None else trigger_row(row, delivery=False)


async def update_trigger(connection: Connection, *, tenant: int, before: TriggerRow, spec: TriggerSpec) -> bool:
    row = await connection.fetchrow(
        q("update_trigger"), tenant, before.name, kind_of(spec), before.version, *_columns(spec)
    )
    hint(connection, ports.TRIGGERS, ports.EDIT)
    return row is not None


async def pause_trigger(connection: Connection, *, tenant: int, name: str, reason: str) -> bool:
    return await connection.fetchrow(q("pause_trigger"), tenant, name, reason or None) is not None


async def resume_trigger(connection: Connection, *, tenant: int, name: str) -> bool:
    hint(connection, ports.TRIGGERS, ports.EDIT)
    return await connection.fetchrow(q("resume_trigger"), tenant, name) is not None


async def delete_trigger(connection: Connection, *, tenant: int, name: str) -> bool:
    return await connection.fetchrow(q("delete_trigger"), tenant, name) is not None


async def set_trigger_secrets(connection: Connection, *, tenant: int, name: str, secrets: SecretFields) -> None:
    await connection.execute(q("set_trigger_secrets"), tenant, name, *secrets.columns())


async def note_rejection(connection: Connection, *, trigger_id: UUID, reason: str) -> None:
    """Of any tenant: the request was rejected, so it has none."""
    await connection.execute(q("note_rejection"), trigger_id, reason)


async def record_delivery(
    connection: Connection, *, tenant: int, trigger_id: UUID, key: str, event: str | None
) -> tuple[DeliveryRow, bool] | None:
    """Insert or find a delivery and lock it; also whether it is the first of its key. None: the trigger is gone."""
    row = await connection.fetchrow(q("record_delivery"), trigger_id, tenant, key, event)
    return None if row is None else (_delivery(row), row["is_first"])


async def decide_delivery(
    connection: Connection,
    *,
    tenant: int,
    delivery_id: int,
    outcome: DeliveryOutcome,
    reason: str | None = None,
    execution_id: UUID | None = None,
    params: dict[str, Any] | None = None,
) -> bool:
    row = await connection.fetchrow(q("decide_delivery"), delivery_id, tenant, outcome, reason, execution_id, params)
    return row is not None


async def list_trigger_deliveries(
    connection: Connection,
    *,
    tenant: int,
    trigger_id: UUID,
    before: int = LAST_ID,
    limit: int,
    outcome: str | None = None,
) -> list[DeliveryRow]:
    rows = await connection.fetch(q("list_trigger_deliveries"), tenant, trigger_id, before, limit, outcome)
    return [_delivery(r) for r in rows]


async def forget_trigger_deliveries(connection: Connection, *, limit: int) -> None:
    await connection.execute(q("forget_trigger_deliveries"), limit)


async def has_completions(connection: Connection) -> bool:
    """Whether the end of an execution of any tenant may start another."""
    return bool(await connection.fetchval(q("has_completions")))


async def notice_ends(connection: Connection, *, execution_ids: Iterable[UUID]) -> int:
    """Record executions that have just ended, of any tenant, for the triggers that wait for them.

    Call it in the transaction that settles them; the leader decides what they start.
    """
    rows = await connection.fetch(q("notice_ends"), sorted(execution_ids))
    if rows:
        hint(connection, ports.TRIGGERS, ports.WAKE)
    return len(rows)


async def notice_missed_ends(connection: Connection, *, per_trigger: int) -> int:
    """Record recent ends that no settling process has noticed, over all tenants: a leader duty."""
    return len(await connection.fetch(q("notice_missed_ends"), per_trigger))


async def pending_deliveries(connection: Connection, *, after: int, limit: int) -> list[tuple[TriggerRow, DeliveryRow]]:
    """Deliveries that are still to be decided, of all tenants, the oldest first: a leader duty."""
    rows = await connection.fetch(q("pending_deliveries"), after, limit)
    return [(trigger_row(r, delivery=False), _delivery(r)) for r in rows]


async def lock_pending(connection: Connection, *, tenant: int, delivery_id: int) -> bool:
    """Lock a delivery that is still to be decided; False: another process decides it, or has."""
    return await connection.fetchrow(q("lock_pending"), delivery_id, tenant) is not None


async def leads_back(connection: Connection, *, tenant: int, name: str, start: str, end: str) -> bool:
    """Whether a success of job `start` leads to job `end`, by triggers except `name` and by dependencies."""
    return bool(await connection.fetchval(q("leads_back"), tenant, name, start, end))


def _columns(spec: TriggerSpec) -> tuple[str, str | None, list[str], Any]:
    """The columns of a definition: job, after_job, outcomes, spec."""
    if isinstance(spec.source, CompletionSource):
        return spec.job, spec.source.after, spec.source.states, msgspec.to_builtins(spec)
    return spec.job, None, [], msgspec.to_builtins(spec)


def trigger_row(r: Any, *, delivery: bool = True) -> TriggerRow:
    return TriggerRow(
        r["trigger_id"],
        r["tenant_id"],
        r["name"],
        r["kind"],
        msgspec.convert(r["spec"], TriggerSpec),
        SecretFields(r["secrets"], r["key_id"], r["envelope"]),
        r["version"],
        r["created_at"],
        r["created_by"],
        r["updated_at"],
        r["paused_at"],
        r["pause_reason"],
        r["last_rejected_at"],
        r["last_rejection"],
        _delivery(r) if delivery and r["delivery_id"] is not None else None,
        _watch(r) if delivery and r["next_look_at"] is not None else None,
    )


def _watch(r: Any) -> WatchState:
    return WatchState(r["looked_at"], r["next_look_at"], r["watch_error"], r["watch_error_at"], r["lag"])


def _delivery(r: Any) -> DeliveryRow:
    return DeliveryRow(
        r["delivery_id"],
        r["key"],
        r["event"],
        r["outcome"],
        r["reason"],
        r["execution_id"],
        r["params"],
        r["repeats"],
        r["received_at"],
    )
