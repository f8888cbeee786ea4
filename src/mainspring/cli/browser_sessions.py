"""`mainspring browser-sessions`: browsers that are signed in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainspring import wire
from mainspring.cli.connect import connected
from mainspring.cli.group import Group
from mainspring.cli.output import Column, Output, TableLayout, echo
from mainspring.display.times import local

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

SESSIONS: TableLayout[wire.BrowserSession] = TableLayout(
    name=lambda session: str(session.session_id),
    columns=[
        Column("ID", lambda session: str(session.session_id)),
        Column("TOKEN", lambda session: session.token, wraps=True),
        Column("CREATED", lambda session: local(session.created_at)),
        Column("LAST SEEN", lambda session: local(session.seen_at)),
        Column("ADDRESS", lambda session: session.address, wraps=True),
        Column("BROWSER", lambda session: session.user_agent, wide=True),
    ],
    empty="no browser sessions",
)


@click.group("browser-sessions", cls=Group)
def browser_sessions() -> None:
    """List the browsers that are signed in, and sign them out."""


@browser_sessions.command("list")
@connected
async def list_sessions(client: AsyncClient, out: Output) -> None:
    """List browser sessions of the token, or with an admin token of the tenant."""
    out.page(await client.browser_sessions(), SESSIONS)


@browser_sessions.command("end")
@click.argument("session_id", required=False)
@click.option("--all", "everything", is_flag=True, help="End all browser sessions of this token.")
@connected
async def end_session(client: AsyncClient, out: Output, session_id: str | None, everything: bool) -> None:
    """End a browser session. Its cookie stops working at once."""
    if (session_id is None) == (not everything):
        raise click.UsageError("Name a session, or use --all.")
    if session_id is not None:
        await client.end_browser_session(session_id)
        echo(f"ended {session_id}", err=True)
    else:
        ended = await client.end_browser_sessions()
        if out.is_text or out.format == "name":
            echo(f"ended {ended.ended} browser session{'' if ended.ended == 1 else 's'}", err=True)
        else:
            out.value(ended)
