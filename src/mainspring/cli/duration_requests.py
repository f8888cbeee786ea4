"""`mainspring duration-requests`: timeouts above the maximum of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainspring import wire
from mainspring.cli.connect import connected
from mainspring.cli.group import Group
from mainspring.cli.output import Column, Output, TableLayout
from mainspring.display.times import local

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

REQUESTS: TableLayout[wire.DurationRequest] = TableLayout(
    name=lambda request: str(request.request_id),
    columns=[
        Column("ID", lambda request: str(request.request_id)),
        Column("JOB", lambda request: request.job, wraps=True),
        Column("QUEUE", lambda request: request.queue),
        Column("TIMEOUT", lambda request: request.timeout),
        Column("STATE", lambda request: request.state),
        Column("REASON", lambda request: request.reason, wraps=True),
        Column("REQUESTED", lambda request: local(request.requested_at), wide=True),
        Column("BY", lambda request: request.requested_by, wide=True),
        Column("DECIDED BY", lambda request: request.decided_by or "–", wide=True),
        Column("NOTE", lambda request: request.note, wide=True),
    ],
    empty="no requests",
)
_note = click.option("--note", default="", metavar="TEXT", help="Note for the requester and the audit log.")


@click.group(cls=Group)
def duration_requests() -> None:
    """Request and approve timeouts above the maximum of a queue."""


@duration_requests.command
@click.argument("job")
@click.option("--queue", required=True, metavar="QUEUE", help="Queue of the job.")
@click.option("--timeout", required=True, metavar="DURATION", help="Longest timeout that the job needs, such as 6h.")
@click.option("--reason", required=True, metavar="TEXT", help="Why the job needs it.")
@connected
async def create(client: AsyncClient, out: Output, job: str, queue: str, timeout: str, reason: str) -> None:
    """Request a longer timeout for a job, by name; the job need not exist yet.

    \b
    Example:
      mainspring duration-requests create nightly --queue short --timeout 6h --reason "end of the year"
    """
    new = wire.NewDurationRequest(job=job, queue=queue, timeout=timeout, reason=reason)
    out.row(await client.request_duration(new), REQUESTS)


@duration_requests.command("list")
@click.option("--state", metavar="STATE", help="Only requested, approved, refused or withdrawn ones.")
@connected
async def list_requests(client: AsyncClient, out: Output, state: str | None) -> None:
    """List requests, newest first."""
    out.page(await client.duration_requests(state=state, limit=500), REQUESTS)


@duration_requests.command
@click.argument("request_id", metavar="ID")
@_note
@connected
async def approve(client: AsyncClient, out: Output, request_id: str, note: str) -> None:
    """Approve the request of another user. From then on, every writer of the job may use the timeout."""
    out.row(await client.decide_duration(request_id, approved=True, note=note), REQUESTS)


@duration_requests.command
@click.argument("request_id", metavar="ID")
@_note
@connected
async def refuse(client: AsyncClient, out: Output, request_id: str, note: str) -> None:
    """Refuse a request, or revoke one that is approved. Versions of the job that use it stay as they are."""
    out.row(await client.decide_duration(request_id, approved=False, note=note), REQUESTS)


@duration_requests.command
@click.argument("request_id", metavar="ID")
@connected
async def withdraw(client: AsyncClient, out: Output, request_id: str) -> None:
    """Withdraw a request of your own that is not decided yet."""
    out.row(await client.withdraw_duration(request_id), REQUESTS)
