"""`mainspring audit`: who changed what, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from mainspring import wire
from mainspring.cli.connect import connected, gather
from mainspring.cli.jobs import limit_option
from mainspring.cli.output import Column, Output, TableLayout
from mainspring.display.times import local

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

AUDIT: TableLayout[wire.AuditEntry] = TableLayout(
    name=lambda entry: str(entry.audit_id),
    columns=[
        Column("AT", lambda entry: local(entry.at)),
        Column("WHO", lambda entry: entry.actor),
        Column("DID", lambda entry: entry.action),
        Column("TO", lambda entry: entry.name or entry.subject, wraps=True),
        Column("WHY", lambda entry: entry.reason or "", wraps=True),
        Column("SUBJECT", lambda entry: entry.subject, wide=True),
        Column("DETAILS", lambda entry: _details(entry), wide=True, wraps=True),
    ],
    empty="nobody has done anything yet",
)


def _details(entry: wire.AuditEntry) -> str:
    return "" if entry.details is None else msgspec.json.encode(entry.details).decode()


@click.group
def audit() -> None:
    """List who did what, and why."""


@audit.command("list")
@click.option("--subject", metavar="ID", help="Only what was done to this: an id, or the name of a job or queue.")
@click.option("--actor", metavar="NAME", help="Only what this one did.")
@click.option("--action", metavar="ACTION", help="Only this, such as run.cancel; or a kind, such as run.")
@limit_option(20)
@connected
async def list_entries(
    client: AsyncClient, out: Output, subject: str | None, actor: str | None, action: str | None, limit: int
) -> None:
    """List what was done, the newest first."""
    found = await gather(
        lambda count, cursor: client.audit(subject=subject, actor=actor, action=action, limit=count, cursor=cursor),
        limit,
    )
    out.page(found, AUDIT)
