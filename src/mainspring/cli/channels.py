"""`mainspring channels`: notification channels and their deliveries."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from mainspring import wire
from mainspring.cli.command_options import limit_option
from mainspring.cli.connect import connected, gather
from mainspring.cli.group import Group
from mainspring.cli.output import Column, Output, TableLayout, echo
from mainspring.display.text import clean
from mainspring.display.times import local, span
from mainspring.domain.channel import (
    PAGERDUTY,
    AppriseTarget,
    PagerDutyTarget,
    SlackTarget,
    SmtpTarget,
    Target,
    WebhookTarget,
)

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

CHANNELS: TableLayout[wire.Channel] = TableLayout(
    name=lambda channel: channel.name,
    columns=[
        Column("NAME", lambda channel: channel.name),
        Column("KIND", lambda channel: channel.kind),
        Column("STATE", lambda channel: channel.state, color=lambda c: None if c.state == "ok" else "red"),
        Column("PENDING", lambda channel: f"{channel.pending:,}"),
        Column("EVENTS", lambda channel: ", ".join(channel.events) or "as jobs and rules name it", wraps=True),
        Column("LAST ERROR", lambda channel: channel.last_error or "", wraps=True),
        Column("TARGET", lambda channel: json.dumps(channel.target), wide=True, wraps=True),
    ],
    empty="no channels; add one with: mainspring channels add ops --slack -",
)
DELIVERIES: TableLayout[wire.Delivery] = TableLayout(
    name=lambda delivery: str(delivery.delivery_id),
    columns=[
        Column("WHEN", lambda delivery: local(delivery.created_at)),
        Column("CHANNEL", lambda delivery: delivery.channel, wraps=True),
        Column("EVENT", lambda delivery: delivery.event, wraps=True),
        Column("STATE", lambda delivery: delivery.state, color=lambda d: None if d.state == "sent" else "red"),
        Column("ATTEMPTS", lambda delivery: str(delivery.tries), optional=True),
        Column("STATUS", lambda delivery: "–" if delivery.status is None else str(delivery.status)),
        Column("DURATION", lambda delivery: span(delivery.duration_ms), optional=True),
        Column("RESPONSE", lambda delivery: delivery.error or delivery.excerpt or "", wraps=True),
        Column("EVENT ID", lambda delivery: str(delivery.event_id), wide=True),
    ],
    empty="no deliveries",
)


@click.group(cls=Group)
def channels() -> None:
    """Manage notification channels: webhooks, Slack, PagerDuty, mail."""


@channels.command("list")
@connected
async def list_channels(client: AsyncClient, out: Output) -> None:
    """List channels."""
    out.page(await client.channels(), CHANNELS)


@channels.command
@click.argument("name")
@click.option("--webhook", metavar="URL", help="Webhook that receives signed JSON.")
@click.option("--slack", metavar="URL", help="Slack incoming webhook; - prompts for it.")
@click.option("--pagerduty", metavar="KEY", help="PagerDuty routing key; - prompts for it.")
@click.option("--pagerduty-url", default=PAGERDUTY, show_default=True, metavar="URL", help="PagerDuty endpoint.")
@click.option("--smtp", metavar="HOST[:PORT]", help="Mail server.")
@click.option("--from", "sender", metavar="ADDRESS", help="Sender of mail.")
@click.option("--to", multiple=True, metavar="ADDRESS", help="Recipient of mail. Repeatable.")
@click.option("--username", help="User name at the mail server; prompts for the password.")
@click.option(
    "--tls",
    type=click.Choice(["starttls", "tls", "none"]),
    default="starttls",
    show_default=True,
    help="Encryption of mail.",
)
@click.option("--apprise", metavar="URL", help="apprise URL; - prompts for it.")
@click.option(
    "--event", "events", multiple=True, metavar="EVENT", help="Event to subscribe to, such as alert.firing. Repeatable."
)
@click.option(
    "--job",
    "jobs",
    multiple=True,
    metavar="PATTERN",
    help="Jobs whose execution events are sent, such as etl-*. Repeatable.",
)
@connected
async def add(
    client: AsyncClient,
    out: Output,
    name: str,
    webhook: str | None,
    slack: str | None,
    pagerduty: str | None,
    pagerduty_url: str,
    smtp: str | None,
    sender: str | None,
    to: tuple[str, ...],
    username: str | None,
    tls: str,
    apprise: str | None,
    events: tuple[str, ...],
    jobs: tuple[str, ...],
) -> None:
    """Add a channel.

    \b
    Examples:
      mainspring channels add ops --slack - --event alert.firing
      mainspring channels add hook --webhook https://example.com/hook
    """
    targets: list[Target] = []
    if webhook is not None:
        targets.append(WebhookTarget(webhook))
    if slack is not None:
        targets.append(SlackTarget(_asked(slack, "Webhook URL")))
    if pagerduty is not None:
        targets.append(PagerDutyTarget(_asked(pagerduty, "Routing key"), pagerduty_url))
    if smtp is not None:
        targets.append(_mail(smtp, sender, to, username, tls))
    if apprise is not None:
        targets.append(AppriseTarget(_asked(apprise, "apprise URL")))
    if len(targets) != 1:
        raise click.UsageError("Use one of --webhook, --slack, --pagerduty, --smtp and --apprise.")
    made = await client.add_channel(wire.NewChannel(name=name, target=targets[0], events=list(events), jobs=list(jobs)))
    out.one(made, CHANNELS, _added)


@channels.command
@click.argument("name")
@connected
async def test(client: AsyncClient, out: Output, name: str) -> None:
    """Send a test notification and print the response. Exit code 1 if it was not delivered."""
    found = await client.test_channel(name)
    if not out.is_text:
        out.value(found)
    else:
        answered = f" {found.status}" if found.status is not None else ""
        says = found.error or found.excerpt or ""
        echo(
            clean(
                f"{'✔ delivered' if found.delivered else '✖ not delivered'}{answered} in {found.duration_ms} ms: {says}"
            )
        )
    if not found.delivered:
        raise click.exceptions.Exit(1)


@channels.command
@click.argument("name")
@connected
async def enable(client: AsyncClient, out: Output, name: str) -> None:
    """Enable a disabled channel. Past events are not sent."""
    out.one(await client.enable_channel(name), CHANNELS, lambda channel: f"{channel.name}: {channel.state}")


@channels.command
@click.argument("name")
@connected
async def delete(client: AsyncClient, out: Output, name: str) -> None:
    """Delete a channel that no job uses."""
    await client.delete_channel(name)
    out.deleted(name)


@channels.command
@click.option("--channel", metavar="NAME", help="Channel.")
@click.option("--state", type=click.Choice(["pending", "sent", "dropped"]), help="State.")
@limit_option(20)
@connected
async def deliveries(client: AsyncClient, out: Output, channel: str | None, state: str | None, limit: int) -> None:
    """List deliveries with their responses, newest first."""

    async def fetch(n: int, cursor: str | None) -> wire.Page[wire.Delivery]:
        return await client.deliveries(channel=channel, state=state, limit=n, cursor=cursor)

    out.page(await gather(fetch, limit), DELIVERIES)


def _asked(value: str, what: str) -> str:
    """Prompt for `-`: other users of the machine can see secrets on a command line."""
    return str(click.prompt(what, hide_input=True, err=True)) if value == "-" else value


def _mail(server: str, sender: str | None, to: tuple[str, ...], username: str | None, tls: str) -> SmtpTarget:
    if sender is None or not to:
        raise click.UsageError("--smtp needs --from and --to.")
    host, _, port = server.partition(":")
    if port and not port.isdigit():
        raise click.UsageError(f"Invalid port in --smtp: {port!r}.")
    password = None if username is None else _asked("-", "Password")
    return SmtpTarget(host, sender, to, int(port or 587), tls, username, password)  # type: ignore[arg-type]


def _added(channel: wire.Channel) -> str:
    text = f"{channel.name} added; test it with: mainspring channels test {channel.name}"
    if channel.secret is None:
        return text
    return f"{text}\n\nSigning secret. It is not shown again:\n\n  {channel.secret}\n"
