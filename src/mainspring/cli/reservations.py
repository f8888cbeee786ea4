"""`mainspring reservations`: places on workers that are kept for somebody, for a time."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from mainspring import wire
from mainspring.cli.arguments import when
from mainspring.cli.connect import connected
from mainspring.cli.output import Column, Output, TableLayout
from mainspring.cli.spec import pair
from mainspring.display.text import clean
from mainspring.display.times import distance, local, now
from mainspring.domain.placement.resources import show_amounts

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

RESERVATIONS: TableLayout[wire.Reservation] = TableLayout(
    name=lambda reservation: reservation.name,
    columns=[
        Column("NAME", lambda reservation: reservation.name),
        Column("FROM", lambda reservation: local(reservation.start_at)),
        Column("TO", lambda reservation: local(reservation.end_at)),
        Column("FOR", lambda reservation: whom(reservation)),
        Column("PLACES", lambda r: f"{sum(r.places.values())}/{r.slots}"),
        Column("EACH", lambda reservation: show_amounts(reservation.resources)),
        Column("ON", lambda reservation: ", ".join(reservation.places), wraps=True),
        Column("STATE", lambda reservation: state_text(reservation)),
        Column("REASON", lambda reservation: reservation.reason, wide=True),
        Column("BY", lambda reservation: reservation.created_by, wide=True),
    ],
    empty="no reservations",
)


@click.group
def reservations() -> None:
    """Places on workers that are kept free for a tenant, a queue or a job, for a time."""


@reservations.command("list")
@connected
async def list_reservations(client: AsyncClient, out: Output) -> None:
    """List reservations that are not over, the next first."""
    out.page(await client.reservations(), RESERVATIONS)


@reservations.command
@click.argument("name")
@click.option("--from", "start_at", type=when, metavar="T", help="The beginning (UTC), or +10m.  [now]")
@click.option("--to", "end_at", type=when, metavar="T", required=True, help="The end, or +2h.")
@click.option("--slots", type=click.IntRange(1), default=1, help="So many places.", show_default=True)
@click.option("--resources", multiple=True, callback=pair, metavar="K=V", help="What each has: cpu=2, gpu=1, ...")
@click.option("--labels", multiple=True, callback=pair, metavar="K=V", help="Only on workers with this label.")
@click.option("--for", "whom", metavar="WHOM", default="tenant", help="job:NAME, queue:NAME or tenant.  [tenant]")
@click.option("--shared", is_flag=True, help="Also on workers that serve every tenant.")
@click.option("--anyway", is_flag=True, help="Even if workers that have the places are still to come.")
@click.option("--reason", default="", metavar="TEXT", help="Why, for whoever looks at it later.")
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
    whom: str,
    shared: bool,
    anyway: bool,
    reason: str,
) -> None:
    """Keep places free.

    \b
    mainspring reservations add night --from 2030-01-01T02:00 --to 2030-01-01T04:00 --slots 4 --for queue:reports
    mainspring reservations add training --from +2h --to +6h --resources gpu=1 --for job:train
    """
    kind, _, of = whom.partition(":")
    if (kind in ("job", "queue")) != bool(of) or kind not in ("job", "queue", "tenant"):
        raise click.UsageError(f"--for {whom!r}: write job:NAME, queue:NAME or tenant")
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
        click.echo(clean(f"warning: {warning}"), err=True)


@reservations.command
@click.argument("name")
@connected
async def delete(client: AsyncClient, out: Output, name: str) -> None:
    """End a reservation: its places are anybody's again."""
    await client.delete_reservation(name)
    click.echo(clean(name if out.format == "name" else f"{name}: deleted"), err=out.format in ("json", "jsonl"))


def whom(reservation: wire.Reservation) -> str:
    if reservation.job is not None:
        return f"job {reservation.job}"
    return f"queue {reservation.queue}" if reservation.queue is not None else "tenant"


def state_text(reservation: wire.Reservation) -> str:
    if reservation.begun:
        return f"holds, over {distance(reservation.end_at, now())}"
    return f"begins {distance(reservation.start_at, now())}"


def _added(reservation: wire.Reservation) -> str:
    kept = ", ".join(f"{n} on {worker}" for worker, n in reservation.places.items()) or "nothing yet"
    window = f"{local(reservation.start_at)} to {local(reservation.end_at)}"
    return f"{reservation.name} added for {whom(reservation)}: {kept}, {window}"
