"""Create, edit, test and list notification channels."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import msgspec

from mainspring import wire
from mainspring.alerts.format import Notification
from mainspring.alerts.send import Sender
from mainspring.alerts.targets import check_secrets, opened, sealed, secrets_of
from mainspring.clock import instant
from mainspring.domain.audit import changes
from mainspring.domain.channel import Target, WebhookTarget, channel_problems, kept_secrets, kind_of, new_secret
from mainspring.domain.errors import Conflict, Invalid, NotFound, invalid
from mainspring.domain.events import TEST
from mainspring.store import audit, channels, outbox
from mainspring.store.channels import ChannelRow, StoredTarget
from mainspring.store.db import Connection, Database, Taken, database_now_ms
from mainspring.vault.references import references_in
from mainspring.vault.vault import Vault

MAX_PAGE = 500
LAST_ID = 2**63 - 1


async def create(database: Database, vault: Vault, request: wire.NewChannel, *, tenant: int, by: str) -> wire.Channel:
    """Create a channel. It receives events from now on."""
    target, secret = request.target, None
    if isinstance(target, WebhookTarget) and target.secret is None:
        secret = new_secret()
        target = msgspec.structs.replace(target, secret=secret)
    _check(request.name, target, request)
    stored = sealed(vault, target, tenant=tenant, channel_id=uuid4(), name=request.name)
    try:
        async with database.transaction() as connection:
            await check_secrets(connection, request.name, target, tenant=tenant)
            await channels.insert_channel(
                connection, tenant=tenant, target=stored, events=request.events, jobs=request.jobs, by=by
            )
            await audit.record(
                connection,
                "channel.create",
                request.name,
                tenant=tenant,
                by=by,
                name=request.name,
                kind=kind_of(target),
                events=request.events,
                jobs=request.jobs,
                **_references(stored),
            )
    except Taken:
        raise Conflict(f"channel {request.name!r} already exists", code="name_taken") from None
    return msgspec.structs.replace(await get(database, request.name, tenant=tenant), secret=secret)


async def replace(
    database: Database, vault: Vault, name: str, request: wire.ChannelSpec, *, tenant: int, by: str
) -> wire.Channel:
    """Replace a channel and enable it. Secrets that are left out stay, unless the channel gets another address."""
    async with database.transaction() as connection:
        await channels.lock_channel(connection, tenant=tenant, name=name)
        row = await _row(connection, name, tenant=tenant)
        target, before = request.target, row.stored
        if kind_of(target) == row.kind:
            target = kept_secrets(target, before.shown, secrets_of(vault, before))
        secret = None
        if isinstance(target, WebhookTarget) and target.secret is None:
            secret = new_secret()
            target = msgspec.structs.replace(target, secret=secret)
        _check(name, target, request)
        await check_secrets(connection, name, target, tenant=tenant)
        stored = sealed(vault, target, tenant=tenant, channel_id=before.channel_id, name=name, before=before.secrets)
        new_secrets = kind_of(target) != row.kind or secrets_of(vault, stored) != secrets_of(vault, before)
        await channels.update_channel(
            connection, tenant=tenant, target=stored, events=request.events, jobs=request.jobs
        )
        now = await _row(connection, name, tenant=tenant)
        fields = [*changes(_audited(row), _audited(now)), *(["secrets"] if new_secrets else [])]
        await audit.record(
            connection, "channel.edit", name, tenant=tenant, by=by, name=name, fields=fields, **_references(stored)
        )
    return msgspec.structs.replace(await get(database, name, tenant=tenant), secret=secret)


async def get(database: Database, name: str, *, tenant: int) -> wire.Channel:
    async with database.connection() as connection:
        return shown(await _row(connection, name, tenant=tenant))


async def list_all(database: Database, *, tenant: int) -> wire.Page[wire.Channel]:
    async with database.connection() as connection:
        return wire.Page(items=[shown(row) for row in await channels.list_channels(connection, tenant=tenant)])


async def enable(database: Database, name: str, *, tenant: int, by: str) -> wire.Channel:
    """Enable a disabled channel; it receives events from now on."""
    async with database.transaction() as connection:
        if not await channels.enable_channel(connection, tenant=tenant, name=name):
            raise _unknown(name)
        await audit.record(connection, "channel.enable", name, tenant=tenant, by=by, name=name)
    return await get(database, name, tenant=tenant)


async def delete(database: Database, name: str, *, tenant: int, by: str) -> None:
    async with database.transaction() as connection:
        await _row(connection, name, tenant=tenant)
        if not await channels.delete_channel(connection, tenant=tenant, name=name):
            raise Conflict(f"channel {name!r} is used by jobs; change their notify first", code="in_use")
        await audit.record(connection, "channel.delete", name, tenant=tenant, by=by, name=name)


async def test(database: Database, vault: Vault, sender: Sender, name: str, *, tenant: int) -> wire.ChannelTest:
    """Send a test notification now, not through the outbox, and return the receiver's answer."""
    async with database.connection() as connection:
        row = await _row(connection, name, tenant=tenant)
        now = instant(await database_now_ms(connection))
    try:
        target = await opened(database, vault, row.stored)
    except Conflict as error:
        return wire.ChannelTest(delivered=False, status=None, excerpt=None, duration_ms=0, error=error.message)
    sent = await sender.send(target, Notification(TEST, str(uuid4()), now, {"channel": name, "kind": row.kind}))
    if sent.error is None and row.kind == "pagerduty":
        closing = Notification("channel.recovered", str(uuid4()), now, {"channel": name, "kind": row.kind})
        sent = await sender.send(target, closing)
    return wire.ChannelTest(
        delivered=sent.error is None,
        status=sent.status,
        excerpt=sent.excerpt,
        duration_ms=sent.duration_ms,
        error=sent.error,
    )


async def deliveries(
    database: Database,
    *,
    tenant: int,
    limit: int = 50,
    cursor: str | None = None,
    channel: str | None = None,
    state: str | None = None,
) -> wire.Page[wire.Delivery]:
    """Return deliveries, newest first."""
    if not 1 <= limit <= MAX_PAGE:
        raise invalid(
            "/limit",
            f"limit must be from 1 to {MAX_PAGE} (got {limit})",
            hint="use a smaller limit and follow next_cursor",
        )
    if state not in (None, "pending", "sent", "dropped"):
        raise invalid("/state", f"unknown delivery state {state!r}", hint="use pending, sent or dropped")
    try:
        before = LAST_ID if cursor is None else int(cursor)
    except ValueError:
        raise invalid(
            "/cursor", f"invalid cursor {cursor!r}", hint="pass next_cursor of the previous page unchanged"
        ) from None
    async with database.connection() as connection:
        found = await outbox.list_deliveries(
            connection, tenant=tenant, before=min(before, LAST_ID), limit=limit + 1, channel=channel, state=state
        )
    more = len(found) > limit
    return wire.Page(items=found[:limit], next_cursor=str(found[limit - 1].delivery_id) if more else None)


def shown(row: ChannelRow) -> wire.Channel:
    """Return the channel without its secrets; references to secrets are shown."""
    state = "disabled" if row.disabled_at is not None else "failing" if row.failing_since is not None else "ok"
    return wire.Channel(
        name=row.name,
        kind=row.kind,
        target={**row.stored.shown, **_reference_fields(row.stored)},
        secrets=row.stored.secret_names,
        events=row.events,
        jobs=row.jobs,
        state=state,  # type: ignore[arg-type]
        pending=row.pending,
        created_at=row.created_at,
        created_by=row.created_by,
        failing_since=row.failing_since,
        last_error=row.last_error,
        disabled_at=row.disabled_at,
    )


def _audited(row: ChannelRow) -> dict[str, Any]:
    """Return the fields that the audit log records: never a secret."""
    return {"kind": row.kind, "target": row.stored.shown, "events": row.events, "jobs": row.jobs}


def _reference_fields(stored: StoredTarget) -> dict[str, str]:
    return {field: stored.secrets.plain[field] for field in references_in(stored.secrets.plain)}


def _references(stored: StoredTarget) -> dict[str, Any]:
    """Return the secrets that the channel refers to, for the audit log; empty without one."""
    found = references_in(stored.secrets.plain)
    return {"uses_secrets": sorted(found.values())} if found else {}


def _check(name: str, target: Target, request: wire.ChannelSpec) -> None:
    problems = channel_problems(name, target, request.events)
    if problems:
        raise Invalid(problems[0].message, code="bad_channel", problems=tuple(problems))


async def _row(connection: Connection, name: str, *, tenant: int) -> ChannelRow:
    found = await channels.list_channels(connection, tenant=tenant, name=name)
    if not found:
        raise _unknown(name)
    return found[0]


def _unknown(name: str) -> NotFound:
    return NotFound(f"channel {name!r} does not exist")
