"""Queues, calendars, channels and alert rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.alerts import channels as alert_channels
from mainspring.alerts import rules
from mainspring.apply.adapter import Adapter, Live, Writer, Written
from mainspring.domain.alert import Rule
from mainspring.domain.channel import SECRETS, joined
from mainspring.domain.queue import QueueSettings
from mainspring.intake import calendars as calendar_intake
from mainspring.intake import queues as queue_intake
from mainspring.manifest import STORED, without_defaults
from mainspring.store import alerts, calendars, channels, queues
from mainspring.store.channels import ChannelRow
from mainspring.store.db import Connection
from mainspring.vault.references import references_in


class Queues(Adapter):
    """A queue exists as soon as a job names it, and can't be deleted: its settings return to their defaults."""

    async def read(self, connection: Connection, wanted: Mapping[str, UUID | None], *, tenant: int) -> dict[str, Live]:
        found = await queues.queue_settings(connection, tenant=tenant)
        return {name: Live(without_defaults(found[name])) for name in wanted if name in found}

    async def page(self, connection: Connection, *, tenant: int, after: str, limit: int) -> list[tuple[str, Live]]:
        found = await queues.queue_settings(connection, tenant=tenant)
        names = sorted(name for name in found if name > after)[:limit]
        return [(name, Live(without_defaults(found[name]))) for name in names]

    async def write(self, writer: Writer, name: str, definition: QueueSettings, live: Live | None) -> Written:
        values = msgspec.to_builtins(definition)
        await queue_intake.change(writer.database, name, values, tenant=writer.tenant, by=writer.by)
        return Written()

    async def delete(self, writer: Writer, name: str, live: Live, last: dict[str, Any]) -> None:
        defaults: dict[str, Any] = dict.fromkeys(last)
        await queue_intake.change(writer.database, name, defaults, tenant=writer.tenant, by=writer.by)


class Calendars(Adapter):
    locks_shards = True

    async def read(self, connection: Connection, wanted: Mapping[str, UUID | None], *, tenant: int) -> dict[str, Live]:
        found = {}
        for name in wanted:
            for row in await calendars.list_calendars(connection, tenant=tenant, name=name):
                found[name] = _calendar(row)
        return found

    async def page(self, connection: Connection, *, tenant: int, after: str, limit: int) -> list[tuple[str, Live]]:
        rows = await calendars.list_calendars(connection, tenant=tenant, after=after, limit=limit)
        return [(row.name, _calendar(row)) for row in rows]

    async def write(self, writer: Writer, name: str, definition: wire.CalendarDays, live: Live | None) -> Written:
        await calendar_intake.put(writer.database, name, definition, tenant=writer.tenant, by=writer.by)
        return Written()

    async def delete(self, writer: Writer, name: str, live: Live, last: dict[str, Any]) -> None:
        await calendar_intake.delete(writer.database, name, tenant=writer.tenant, by=writer.by)


class Channels(Adapter):
    """Channels, without their secrets: the manifest gives one, or keeps the one that is stored."""

    async def read(self, connection: Connection, wanted: Mapping[str, UUID | None], *, tenant: int) -> dict[str, Live]:
        rows = await channels.list_channels(connection, tenant=tenant)
        return {row.name: _channel(row) for row in rows if row.name in wanted}

    async def page(self, connection: Connection, *, tenant: int, after: str, limit: int) -> list[tuple[str, Live]]:
        rows = await channels.list_channels(connection, tenant=tenant)
        return [(row.name, _channel(row)) for row in rows if row.name > after][:limit]

    async def write(self, writer: Writer, name: str, definition: wire.NewChannel, live: Live | None) -> Written:
        if live is None:
            created = await alert_channels.create(
                writer.database, writer.vault, definition, tenant=writer.tenant, by=writer.by
            )
            return Written(secret=created.secret)
        spec = wire.ChannelSpec(target=definition.target, events=definition.events, jobs=definition.jobs)
        found = await alert_channels.replace(
            writer.database, writer.vault, name, spec, tenant=writer.tenant, by=writer.by
        )
        return Written(secret=found.secret)

    async def delete(self, writer: Writer, name: str, live: Live, last: dict[str, Any]) -> None:
        await alert_channels.delete(writer.database, name, tenant=writer.tenant, by=writer.by)


class AlertRules(Adapter):
    """Rules of the tenant; the manifest of a built-in rule overrides it until it is pruned."""

    async def read(self, connection: Connection, wanted: Mapping[str, UUID | None], *, tenant: int) -> dict[str, Live]:
        found = await alerts.tenant_rules(connection, tenant=tenant)
        return {name: Live(without_defaults(found[name][0])) for name in wanted if name in found}

    async def page(self, connection: Connection, *, tenant: int, after: str, limit: int) -> list[tuple[str, Live]]:
        found = await alerts.tenant_rules(connection, tenant=tenant)
        names = sorted(name for name in found if name > after)[:limit]
        return [(name, Live(without_defaults(found[name][0]))) for name in names]

    async def write(self, writer: Writer, name: str, definition: Rule, live: Live | None) -> Written:
        await rules.put_rule(writer.database, name, definition, tenant=writer.tenant, by=writer.by)
        return Written()

    async def delete(self, writer: Writer, name: str, live: Live, last: dict[str, Any]) -> None:
        await rules.delete_rule(writer.database, name, tenant=writer.tenant, by=writer.by)


def split_secrets(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Split the fields of a channel's manifest into those that are compared and stored, and its secrets."""
    target = given.get("target")
    if not isinstance(target, dict):
        return given, {}
    hidden = SECRETS.get(str(target.get("kind")), ())
    secrets = {field: target[field] for field in hidden if target.get(field) is not None}
    shown = {key: value for key, value in target.items() if key not in hidden}
    return {**given, "target": shown}, secrets


def exported_target(live: Live) -> dict[str, Any]:
    """The fields of a channel with its references, and placeholders in place of its other secrets."""
    plain = live.source.stored.secrets.plain
    references = {field: plain[field] for field in references_in(plain)}
    target = {**live.values["target"], **dict.fromkeys(live.secrets, STORED), **references}
    return {**live.values, "target": target}


def _calendar(row: wire.Calendar) -> Live:
    return Live(without_defaults(row.days), source=row)


def _channel(row: ChannelRow) -> Live:
    shown = joined(row.kind, row.stored.shown, {})
    values = without_defaults(wire.ChannelSpec(target=shown, events=row.events, jobs=row.jobs))
    return Live(values, source=row, secrets=dict.fromkeys(row.stored.secret_names, row.stored.secrets))
