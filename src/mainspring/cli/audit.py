"""`mainspring audit`: list, verify and export the audit log."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from mainspring import wire
from mainspring.cli.command_options import limit_option
from mainspring.cli.connect import connected, gather
from mainspring.cli.group import Group
from mainspring.cli.output import Column, Output, TableLayout, echo, is_terminal, print_message
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
        Column("SOURCE", lambda entry: entry.source or "", wide=True),
        Column("REQUEST", lambda entry: entry.request_id or "", wide=True),
        Column("SEQ", lambda entry: str(entry.seq or "–"), wide=True),
        Column("DETAILS", lambda entry: _details(entry), wide=True, wraps=True),
    ],
    empty="no audit entries",
)


def _details(entry: wire.AuditEntry) -> str:
    return "" if entry.details is None else msgspec.json.encode(entry.details).decode()


@click.group(cls=Group)
def audit() -> None:
    """List, verify and export the audit log: who changed what, when and why."""


cluster_option = click.option("--cluster", is_flag=True, help="The log of the cluster: entries of no tenant.")


@audit.command("list")
@click.option("--subject", metavar="ID|NAME", help="Changed object: an id, or the name of a job or queue.")
@click.option("--actor", metavar="ID|NAME", help="Token that made the change: its id, or its name.")
@click.option("--action", metavar="ACTION", help="Action, such as run.cancel, or a group, such as run.")
@cluster_option
@limit_option(20)
@connected
async def list_entries(
    client: AsyncClient,
    out: Output,
    subject: str | None,
    actor: str | None,
    action: str | None,
    cluster: bool,
    limit: int,
) -> None:
    """List audit entries, newest first."""
    found = await gather(
        lambda count, cursor: client.audit(
            subject=subject, actor=actor, action=action, cluster=cluster, limit=count, cursor=cursor
        ),
        limit,
    )
    out.page(found, AUDIT)


@audit.command()
@cluster_option
@click.option("--head", metavar="SEQ:HASH", help="A head that an outside witness has: the chain must contain it.")
@connected
async def verify(client: AsyncClient, out: Output, cluster: bool, head: str | None) -> None:
    """Verify the hash chain and the signed heads of the audit log.

    Names the first entry that was changed, removed, inserted or moved, and exits with 1.
    """
    verified, cursor = 0, None
    while True:
        found = await client.verify_audit(cluster=cluster, head=head, cursor=cursor)
        verified, cursor = verified + found.verified, found.next_cursor
        if found.problem is not None or cursor is None:
            break
    found = msgspec.structs.replace(found, verified=verified)
    if out.is_text:
        _print_verification(found)
    else:
        out.value(found)
    if found.problem is not None:
        raise SystemExit(1)


def _print_verification(found: wire.AuditVerification) -> None:
    for note in found.notes:
        print_message(note)
    if found.problem is not None:
        print_message(f"the audit log was tampered with ({found.problem.kind}): {found.problem.what}")
        return
    signed = f"signed up to entry {found.signed_entries:,}" if found.signed_at else "not signed"
    more = f"; {found.unchained:,} not chained yet" if found.unchained else ""
    echo(f"{found.verified:,} entries intact, {signed}{more}")
    if found.entries:
        echo(f"head {found.entries}:{found.hash}")


def _write(chunk: bytes) -> None:
    """Write as it is, for programs; on a terminal nothing in it can control the terminal."""
    if is_terminal(sys.stdout):
        echo(chunk.decode("utf-8", "replace"), nl=False)
    else:
        sys.stdout.buffer.write(chunk)


@audit.command()
@cluster_option
@click.option("--to", "target", metavar="FILE", default="-", help="File to write; - is stdout.  [default: -]")
@click.option("--after", type=click.IntRange(0), metavar="SEQ", default=0, help="Begin behind this entry.")
@connected
async def export(client: AsyncClient, out: Output, cluster: bool, target: str, after: int) -> None:
    """Write the chained audit entries as JSON lines with their hashes, oldest first, and the signed heads."""
    chunks = client.export_audit(cluster=cluster, after=after)
    if target == "-":
        async for chunk in chunks:
            _write(chunk)
        sys.stdout.flush()
        return
    path = Path(target)
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            async for chunk in chunks:
                file.write(chunk)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    print_message(f"audit log written to {path}")
