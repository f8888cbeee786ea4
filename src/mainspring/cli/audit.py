"""`mainspring audit`: the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from mainspring import wire
from mainspring.cli.command_options import limit_option
from mainspring.cli.connect import connected, gather
from mainspring.cli.group import Group
from mainspring.cli.output import Column, Output, TableLayout
from mainspring.display.times import local
from mainspring.domain.principal import named

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

AUDIT: TableLayout[wire.AuditEntry] = TableLayout(
    name=lambda entry: str(entry.audit_id),
    columns=[
        Column("AT", lambda entry: local(entry.at)),
        Column("ACTOR", lambda entry: named(entry.actor, entry.actor_id)),
        Column("ACTION", lambda entry: entry.action),
        Column("OBJECT", lambda entry: entry.name or entry.subject, wraps=True),
        Column("REASON", lambda entry: entry.reason or "", wraps=True),
        Column("SUBJECT", lambda entry: entry.subject, wide=True),
        Column("ACTOR ID", lambda entry: str(entry.actor_id or "–"), wide=True),
        Column("DETAILS", lambda entry: _details(entry), wide=True, wraps=True),
    ],
    empty="no audit entries",
)


def _details(entry: wire.AuditEntry) -> str:
    return "" if entry.details is None else msgspec.json.encode(entry.details).decode()


@click.group(cls=Group)
def audit() -> None:
    """List the audit log: who changed what, when and why."""


@audit.command("list")
@click.option("--subject", metavar="ID|NAME", help="Changed object: an id, or the name of a job or queue.")
@click.option("--actor", metavar="ID|NAME", help="Token that made the change: its id, or its name.")
@click.option("--action", metavar="ACTION", help="Action, such as run.cancel, or a group, such as run.")
@limit_option(20)
@connected
async def list_entries(
    client: AsyncClient, out: Output, subject: str | None, actor: str | None, action: str | None, limit: int
) -> None:
    """List audit entries, newest first."""
    found = await gather(
        lambda count, cursor: client.audit(subject=subject, actor=actor, action=action, limit=count, cursor=cursor),
        limit,
    )
    out.page(found, AUDIT)
