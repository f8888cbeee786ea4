"""`mainspring tokens`: issue, list, rotate and revoke API tokens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mainspring import wire
from mainspring.cli.connect import connected
from mainspring.cli.group import Group
from mainspring.cli.output import Column, Output, TableLayout, echo
from mainspring.cli.private_file import write_private
from mainspring.display.times import local

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

TOKENS: TableLayout[wire.Token] = TableLayout(
    name=lambda token: str(token.token_id),
    columns=[
        Column("ID", lambda token: str(token.token_id)),
        Column("NAME", lambda token: token.name, wraps=True),
        Column("USER", lambda token: token.user or "-", wraps=True),
        Column("ROLE", lambda token: token.role or "-", wraps=True),
        Column("SCOPES", lambda token: ",".join(token.scopes), wraps=True),
        Column("LAST USED", lambda token: "never" if token.last_used_at is None else local(token.last_used_at)),
        Column("EXPIRES", lambda token: _expiry(token)),
        Column("QUEUES", lambda token: "any" if token.queues is None else ",".join(token.queues), wide=True),
        Column("LABELS", lambda token: "any" if not token.labels else ",".join(token.labels), wide=True),
        Column("CREATED", lambda token: local(token.created_at), wide=True),
        Column("CREATED BY", lambda token: token.created_by or "-", wide=True),
    ],
    empty="no tokens",
)


def _expiry(token: wire.Token) -> str:
    if token.expires_at is None:
        return "never"
    return "expired" if token.expired else local(token.expires_at)


file_option = click.option(
    "--file", "path", type=click.Path(dir_okay=False, path_type=Path), help="Write it to this file, mode 600."
)


@click.group(cls=Group)
def tokens() -> None:
    """Issue, list, rotate and revoke API tokens."""


@tokens.command("create")
@click.argument("name")
@click.option("--role", metavar="ROLE", help="Role, such as viewer, submitter, operator or admin.")
@click.option("--scope", "scopes", multiple=True, metavar="SCOPE", help="Scope besides those of the role. Repeatable.")
@click.option("--user", metavar="NAME", help="User or service that it belongs to; it has the rights of that role.")
@click.option(
    "-q", "--queue", "queues", multiple=True, metavar="NAME", help="Only jobs of this queue. A prefix* too. Repeatable."
)
@click.option(
    "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Only jobs that require this label. Repeatable."
)
@click.option("--expires", metavar="DURATION", help="Lifetime, such as 90d.  [default: unlimited]")
@click.option("--schedules-per-hour", "quota", type=click.IntRange(0), metavar="N", help="Schedules it may create.")
@file_option
@connected
async def create_token(
    client: AsyncClient,
    out: Output,
    name: str,
    role: str | None,
    scopes: tuple[str, ...],
    user: str | None,
    queues: tuple[str, ...],
    labels: tuple[str, ...],
    expires: str | None,
    quota: int | None,
    path: Path | None,
) -> None:
    """Issue a token. It is shown only once, and cannot have more rights than your own.

    \b
    Examples:
      mainspring tokens create ci --role submitter --expires 90d
      mainspring tokens create laptop --user analyst
      mainspring tokens create reports --role submitter --queue 'reports-*' --file reports.token
    """
    new = wire.NewToken(
        name=name,
        role=role,
        scopes=list(scopes),
        user=user,
        queues=list(queues),
        labels=list(labels),
        expires_in=expires,
        schedule_quota=quota,
    )
    show_issued(await client.issue_token(new), out, path)


@tokens.command("list")
@connected
async def list_tokens(client: AsyncClient, out: Output) -> None:
    """List the tokens that are not revoked, newest first."""
    out.page(await client.tokens(limit=500), TOKENS)


@tokens.command("rotate")
@click.argument("token_id")
@click.option(
    "--overlap", default="1h", show_default=True, metavar="DURATION", help="How long the old token stays valid."
)
@file_option
@connected
async def rotate_token(client: AsyncClient, out: Output, token_id: str, overlap: str, path: Path | None) -> None:
    """Replace a token by a new one with the same rights and lifetime."""
    issued = await client.rotate_token(token_id, overlap=overlap)
    if issued.replaced_until is not None:
        echo(f"the old token is valid until {local(issued.replaced_until)}", err=True)
    show_issued(issued, out, path)


@tokens.command("revoke")
@click.argument("token_id")
@connected
async def revoke_token(client: AsyncClient, out: Output, token_id: str) -> None:
    """Revoke a token. It stops working at once."""
    await client.revoke_token(token_id)
    echo(f"revoked {token_id}", err=True)


def show_issued(issued: wire.IssuedToken, out: Output, path: Path | None) -> None:
    """Print a new token, or write it to a file."""
    if path is not None:
        write_private(path, issued.token)
        echo(f"{issued.name}: {path}", err=True)
    elif out.is_text:
        echo(issued.token)
    else:
        out.value(issued)
