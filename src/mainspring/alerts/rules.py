"""List alerts; list, write and delete alert rules."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.domain.alert import BUILT_IN, CONDITIONS, Rule, rule_problems, rules_of
from mainspring.domain.audit import changes
from mainspring.domain.errors import Conflict, Invalid, NotFound, Problem, invalid
from mainspring.store import alerts, audit, channels
from mainspring.store.alerts import SeenRule
from mainspring.store.db import Database

MAX_PAGE = 500
STATES = ("pending", "firing", "resolved")


async def list_alerts(
    database: Database, *, tenant: int, state: str | None = None, limit: int = 50, cursor: str | None = None
) -> wire.Page[wire.Alert]:
    """Return alerts, newest first."""
    if not 1 <= limit <= MAX_PAGE:
        raise invalid(
            "/limit",
            f"limit must be from 1 to {MAX_PAGE} (got {limit})",
            hint="use a smaller limit and follow next_cursor",
        )
    if state is not None and state not in STATES:
        raise invalid("/state", f"unknown alert state {state!r}", hint="use " + ", ".join(STATES))
    try:
        before = UUID(int=2**128 - 1) if cursor is None else UUID(cursor)
    except ValueError:
        raise invalid(
            "/cursor", f"invalid cursor {cursor!r}", hint="pass next_cursor of the previous page unchanged"
        ) from None
    async with database.connection() as connection:
        found = await alerts.list_alerts(connection, tenant=tenant, before=before, limit=limit + 1, state=state)
    more = len(found) > limit
    return wire.Page(items=found[:limit], next_cursor=str(found[limit - 1].alert_id) if more else None)


async def list_rules(database: Database, *, tenant: int) -> wire.Page[wire.AlertRule]:
    """Return every rule that is evaluated for a tenant."""
    async with database.connection() as connection:
        written = await alerts.tenant_rules(connection, tenant=tenant)
    rules = rules_of({name: rule for name, (rule, _, _) in written.items()})
    return wire.Page(items=[_shown(name, rule, written.get(name)) for name, rule in rules.items()])


async def put_rule(
    database: Database, name: str, rule: Rule, *, tenant: int, by: str, seen: SeenRule | None = None
) -> wire.AlertRule:
    """Write a rule; it replaces a built-in rule of the same name. With `seen`, Conflict if it has changed since."""
    problems = rule_problems(name, rule)
    async with database.transaction() as connection:
        known = (
            await channels.known_channels(connection, tenant=tenant, names=rule.channels) if rule.channels else set()
        )
        problems += [
            Problem(f"/channels/{n}", f"channel {channel!r} does not exist", "add it first: mainspring channels add")
            for n, channel in enumerate(rule.channels)
            if channel not in known
        ]
        if problems:
            raise Invalid(problems[0].message, code="bad_rule", problems=tuple(problems))
        written = (await alerts.tenant_rules(connection, tenant=tenant)).get(name)
        old = written[0] if written is not None else BUILT_IN.get(name)
        if not await alerts.upsert_rule(connection, tenant=tenant, name=name, rule=rule, by=by, seen=seen):
            raise Conflict(f"the rule {name} was changed while you edited it; compare, then save again")
        before = {} if old is None else msgspec.to_builtins(old)
        await audit.record(
            connection,
            "rule.write",
            name,
            tenant=tenant,
            by=by,
            name=name,
            changes=changes(before, msgspec.to_builtins(rule)),
        )
        return _shown(name, rule, (await alerts.tenant_rules(connection, tenant=tenant))[name])


async def delete_rule(database: Database, name: str, *, tenant: int, by: str) -> None:
    """Delete a rule; a changed built-in rule gets its defaults back. `enabled: false` disables a built-in rule."""
    async with database.transaction() as connection:
        if not await alerts.delete_rule(connection, tenant=tenant, name=name):
            hint = "; it is built in: to disable it, set enabled: false" if name in BUILT_IN else ""
            raise NotFound(f"no rule {name!r} to delete{hint}")
        await audit.record(connection, "rule.delete", name, tenant=tenant, by=by, name=name)


def _shown(name: str, rule: Rule, written: tuple[Rule, datetime, str] | None) -> wire.AlertRule:
    return wire.AlertRule(
        name=name,
        rule=rule,
        means=meaning(rule),
        built_in=name in BUILT_IN,
        changed=written is not None,
        updated_at=None if written is None else written[1],
        updated_by=None if written is None else written[2],
    )


def meaning(rule: Rule) -> str:
    """Describe a rule in words."""
    condition = CONDITIONS.get(rule.condition)
    if condition is None:
        return rule.condition
    compared = {"above": "more than", "from": "at least", "below": "less than"}[condition.broken]
    value = {
        "ratio": f"{rule.threshold * 100:g} %",
        "s": f"{rule.threshold:g} s",
        "times": f"{rule.threshold:g} times",
    }.get(condition.unit, f"{rule.threshold:,g}")
    only = f" ({rule.only})" if rule.only else ""
    held = f", for {rule.for_s:g} s" if rule.for_s else ""
    return f"{condition.means}{only}: {compared} {value}{held}"
