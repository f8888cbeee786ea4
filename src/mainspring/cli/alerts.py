"""`mainspring alerts` and `mainspring silences`: alerts, alert rules and muting."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click
import msgspec

from mainspring import wire
from mainspring.cli.arguments import seconds, when
from mainspring.cli.command_options import limit_option, reason_option
from mainspring.cli.connect import connected, gather
from mainspring.cli.feed import SHORT_ID
from mainspring.cli.group import Group
from mainspring.cli.output import Column, Output, TableLayout, echo
from mainspring.display.times import distance, local, now
from mainspring.domain.alert import CONDITIONS, Rule, Severity
from mainspring.domain.errors import NotFound
from mainspring.domain.schedule.schedule import ScheduleSpec

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

_COLORS = {"firing": "red", "pending": "yellow", "resolved": None}

ALERTS: TableLayout[wire.Alert] = TableLayout(
    name=lambda alert: str(alert.alert_id),
    columns=[
        Column("STATE", lambda alert: alert.state, color=lambda alert: _COLORS[alert.state]),
        Column("SEVERITY", lambda alert: alert.severity),
        Column("RULE", lambda alert: alert.rule),
        Column("SINCE", lambda alert: local(alert.since_at)),
        Column("SUMMARY", lambda alert: alert.summary, wraps=True),
        Column("NOTIFIED", lambda alert: "–" if alert.told_at is None else local(alert.told_at), wide=True),
        Column("RESOLVED", lambda alert: "–" if alert.resolved_at is None else local(alert.resolved_at), wide=True),
        Column("ID", lambda alert: str(alert.alert_id), wide=True),
    ],
    empty="no alerts",
)
RULES: TableLayout[wire.AlertRule] = TableLayout(
    name=lambda rule: rule.name,
    columns=[
        Column("RULE", lambda rule: rule.name),
        Column("STATE", lambda rule: "on" if rule.rule.enabled else "off"),
        Column("SEVERITY", lambda rule: rule.rule.severity),
        Column("FIRES WHEN", lambda rule: rule.means, wraps=True),
        Column("CHANNELS", lambda rule: ", ".join(rule.rule.channels) or "all subscribed", wraps=True),
        Column("CHANGED BY", lambda rule: rule.updated_by or "built in", wide=True),
    ],
    empty="no rules",
)
SILENCES: TableLayout[wire.Silence] = TableLayout(
    name=lambda silence: str(silence.silence_id),
    columns=[
        Column("ID", lambda silence: str(silence.silence_id)[:SHORT_ID]),
        Column("MATCHES", lambda silence: ", ".join(f"{k}={v}" for k, v in silence.matchers.items()), wraps=True),
        Column("WINDOW", lambda silence: silence.description, wraps=True),
        Column("STATE", lambda s: "–" if s.holds_until is None else f"active, ends {distance(s.holds_until, now())}"),
        Column("REASON", lambda silence: silence.reason, wraps=True),
        Column("BY", lambda silence: silence.created_by),
        Column("FULL ID", lambda silence: str(silence.silence_id), wide=True),
    ],
    empty="no silences",
)


@click.group(cls=Group)
def alerts() -> None:
    """List alerts and change alert rules."""


@alerts.command("list")
@click.option("--state", type=click.Choice(["pending", "firing", "resolved"]), help="State.")
@limit_option(50)
@connected
async def list_alerts(client: AsyncClient, out: Output, state: str | None, limit: int) -> None:
    """List alerts, newest first."""

    async def fetch(n: int, cursor: str | None) -> wire.Page[wire.Alert]:
        return await client.alerts(state=state, limit=n, cursor=cursor)

    out.page(await gather(fetch, limit), ALERTS)


@alerts.command
@connected
async def rules(client: AsyncClient, out: Output) -> None:
    """List the alert rules, which are evaluated every ten seconds."""
    out.page(await client.alert_rules(), RULES)


@alerts.command("set")
@click.argument("name")
@click.option(
    "--condition",
    type=click.Choice(list(CONDITIONS)),
    metavar="NAME",
    help="Condition, such as queue_depth; required for a new rule.",
)
@click.option("--threshold", type=float, metavar="N", help="Threshold of the condition; required for a new rule.")
@click.option("--for", "held", metavar="DURATION", help="Time that the condition must last before the alert fires.")
@click.option("--severity", type=click.Choice(["info", "warning", "critical"]), help="Severity.")
@click.option("--only", metavar="NAME", help="Queue, job or channel to restrict the rule to.")
@click.option(
    "--to",
    "channels",
    multiple=True,
    metavar="CHANNEL",
    help="Channel to notify, instead of all subscribed ones. Repeatable.",
)
@click.option("--on/--off", "enabled", default=None, help="Enable or disable the rule.")
@connected
async def set_rule(
    client: AsyncClient,
    out: Output,
    /,
    name: str,
    condition: str | None,
    threshold: float | None,
    held: str | None,
    severity: Severity | None,
    only: str | None,
    channels: tuple[str, ...],
    enabled: bool | None,
) -> None:
    """Create or change an alert rule.

    \b
    Examples:
      mainspring alerts set queue_lag_short --threshold 20000 --for 2m
      mainspring alerts set etl --condition queue_depth --only etl --threshold 50
      mainspring alerts set success_rate_low --off
    """
    known = {rule.name: rule.rule for rule in (await client.alert_rules()).items}
    old = known.get(name)
    if old is None:
        if condition is None or threshold is None:
            raise click.UsageError(f"Unknown rule {name!r}. A new rule needs --condition and --threshold.")
        old = Rule(condition=condition, threshold=threshold)
    changes = {
        "condition": condition, "threshold": threshold, "for_s": None if held is None else seconds(held),
        "severity": severity, "only": only, "channels": channels or None, "enabled": enabled,
    }  # fmt: skip
    rule = msgspec.structs.replace(old, **{k: v for k, v in changes.items() if v is not None})
    out.row(await client.put_alert_rule(name, rule), RULES)


@alerts.command
@click.argument("name")
@connected
async def reset(client: AsyncClient, out: Output, name: str) -> None:
    """Delete a rule. A built-in rule returns to its default."""
    await client.delete_alert_rule(name)
    echo(name if out.format == "name" else f"{name} reset", err=out.format in ("json", "jsonl", "yaml"))


@click.group(cls=Group)
def silences() -> None:
    """Mute alerts, now or in maintenance windows."""


@silences.command("list")
@connected
async def list_silences(client: AsyncClient, out: Output) -> None:
    """List silences, newest first."""
    out.page(await client.silences(), SILENCES)


@silences.command
@click.argument("matchers", nargs=-1, required=True, metavar="LABEL=PATTERN...")
@click.option("--from", "start_at", type=when, metavar="TIME", help="Start, or +10m.  [default: now]")
@click.option("--until", "end_at", type=when, metavar="TIME", help="End, or +2h.")
@click.option("--cron", metavar="EXPR", help="Cron expression for the start of recurring windows.")
@click.option("--tz", metavar="ZONE", help="Time zone of the expression.  [default: UTC]")
@click.option("--for", "lasts", metavar="DURATION", help="Length of each recurring window, such as 2h.")
@reason_option
@connected
async def add(
    client: AsyncClient,
    out: Output,
    matchers: tuple[str, ...],
    start_at: datetime | None,
    end_at: datetime | None,
    cron: str | None,
    tz: str | None,
    lasts: str | None,
    reason: str,
) -> None:
    """Mute alerts that match all patterns. Labels: rule, severity, job, queue, key.

    \b
    Examples:
      mainspring silences add rule='queue_*' --until +2h --reason 'being fixed'
      mainspring silences add rule='*' --cron '0 2 * * SUN' --for 3h
    """
    pairs = [text.partition("=") for text in matchers]
    if wrong := [name for name, equals, _ in pairs if not equals]:
        raise click.UsageError(f"{wrong[0]!r} is not LABEL=PATTERN, such as rule=queue_*.")
    new = wire.NewSilence(
        matchers={name: pattern for name, _, pattern in pairs},
        start_at=start_at,
        end_at=end_at,
        schedule=None if cron is None else ScheduleSpec(cron=cron, timezone=tz),
        lasts=lasts,
        reason=reason,
    )
    made = await client.add_silence(new)
    out.one(made, SILENCES, lambda s: f"{str(s.silence_id)[:SHORT_ID]} added: {s.description}")


@silences.command
@click.argument("silence")
@connected
async def delete(client: AsyncClient, out: Output, silence: str) -> None:
    """Delete a silence. SILENCE is an id or a unique prefix. Alerts that still fire are then sent."""
    found = [s for s in (await client.silences()).items if str(s.silence_id).startswith(silence.lower())]
    if not silence or len(found) != 1:
        raise NotFound(f"{'several silences begin' if found else 'no silence begins'} with {silence!r}")
    await client.delete_silence(found[0].silence_id)
    out.deleted(str(found[0].silence_id), found[0].description)
