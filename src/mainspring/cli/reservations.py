"""`mainspring reservations`: worker slots reserved for a tenant, queue or job."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from mainspring import wire
from mainspring.cli.arguments import when
from mainspring.cli.command_options import reason_option
from mainspring.cli.connect import connected
from mainspring.cli.group import Group
from mainspring.cli.output import Column, Output, TableLayout, echo
from mainspring.cli.spec_options import pair
from mainspring.display.text import clean
from mainspring.display.times import distance, local, now
from mainspring.domain.placement.resources import show_amounts

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

RESERVATIONS: TableLayout[wire.Reservation] = TableLayout(
    name=lambda reservation: reservation.name,
    columns=[
        Column("NAME", lambda reservation: reservation.name, wraps=True),
        Column("FROM", lambda reservation: local(reservation.start_at)),
        Column("TO", lambda reservation: local(reservation.end_at)),
        Column("FOR", lambda reservation: owner_text(reservation), wraps=True),
        Column("SLOTS", lambda r: f"{sum(r.places.values())}/{r.slots}"),
        Column("RESOURCES", lambda reservation: show_amounts(reservation.resources), wraps=True, optional=True),
        Column("WORKERS", lambda reservation: ", ".join(reservation.places), wraps=True),
        Column("STATE", lambda reservation: state_text(reservation), wraps=True),
        Column("REASON", lambda reservation: reservation.reason, wide=True),
        Column("BY", lambda reservation: reservation.created_by, wide=True),
    ],
    empty="no reservations",
)


@click.group(cls=Group)
def reservations() -> None:
    """Reserve worker slots for a tenant, a queue or a job."""


@reservations.command("list")
@connected
async def list_reservations(client: AsyncClient, out: Output) -> None:
    """List current and future reservations, the next first."""
    out.page(await client.reservations(), RESERVATIONS)


@reservations.command
@click.argument("name")
@click.option(
    "--from", "start_at", type=when, metavar="TIME", help="Start (UTC without an offset), or +10m.  [default: now]"
)
@click.option("--to", "end_at", type=when, metavar="TIME", required=True, help="End, or +2h.")
@click.option("--slots", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Number of slots.")
@click.option(
    "--resources",
    multiple=True,
    callback=pair,
    metavar="KEY=VALUE",
    help="Resources of each slot, such as cpu=2. Repeatable.",
)
@click.option(
    "--labels", multiple=True, callback=pair, metavar="KEY=VALUE", help="Label that the workers must have. Repeatable."
)
@click.option(
    "--for",
    "owner",
    metavar="OWNER",
    default="tenant",
    show_default=True,
    help="Owner: job:NAME, queue:NAME or tenant.",
)
@click.option("--shared", is_flag=True, help="Include workers that serve every tenant.")
@click.option("--anyway", is_flag=True, help="Reserve even if no current worker has the slots.")
@reason_option
@connected
async def add(
    client: AsyncClient,
    out: Output,
    name: str,
    start_at: datetime | None,
    end_at: datetime,
    slots: int,
    resources: dict[str, str],
    labels: dict[str, str],
    owner: str,
    shared: bool,
    anyway: bool,
    reason: str,
) -> None:
    """Reserve slots.

    \b
    Examples:
      mainspring reservations add night --from +2h --to +4h --for queue:reports
      mainspring reservations add train --to +6h --resources gpu=1 --for job:train
    """
    kind, _, of = owner.partition(":")
    if (kind in ("job", "queue")) != bool(of) or kind not in ("job", "queue", "tenant"):
        raise click.UsageError(f"Invalid value for --for: {owner!r}. Write job:NAME, queue:NAME or tenant.")
    new = wire.NewReservation(
        name=name,
        start_at=start_at or now(),
        end_at=end_at,
        slots=slots,
        resources=dict(resources),
        labels=labels,
        queue=of if kind == "queue" else None,
        job=of if kind == "job" else None,
        shared=shared,
        anyway=anyway,
        reason=reason,
    )
    added = await client.add_reservation(new)
    out.one(added, RESERVATIONS, _added)
    for warning in added.warnings:
        echo(clean(f"warning: {warning}"), err=True)


@reservations.command
@click.argument("name")
@connected
async def delete(client: AsyncClient, out: Output, name: str) -> None:
    """Delete a reservation and release its slots."""
    await client.delete_reservation(name)
    out.deleted(name)


def owner_text(reservation: wire.Reservation) -> str:
    if reservation.job is not None:
        return f"job {reservation.job}"
    return f"queue {reservation.queue}" if reservation.queue is not None else "tenant"


def state_text(reservation: wire.Reservation) -> str:
    if reservation.begun:
        return f"active, ends {distance(reservation.end_at, now())}"
    return f"starts {distance(reservation.start_at, now())}"


def _added(reservation: wire.Reservation) -> str:
    reserved = ", ".join(f"{n} on {worker}" for worker, n in reservation.places.items()) or "no slots yet"
    window = f"{local(reservation.start_at)} to {local(reservation.end_at)}"
    return f"{reservation.name} added for {owner_text(reservation)}: {reserved}, {window}"
