"""`mainspring queues` and `mainspring why`: queue depth and settings, and why an execution waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mainspring import wire
from mainspring.cli.arguments import seconds
from mainspring.cli.connect import connected
from mainspring.cli.group import Group
from mainspring.cli.output import Column, Output, TableLayout, echo
from mainspring.display.text import clean
from mainspring.display.times import local, span
from mainspring.domain.duration import format_duration
from mainspring.domain.placement.isolation import LEVELS, MinIsolation
from mainspring.domain.queue import Placement, QueueSettings

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

QUEUES: TableLayout[wire.Queue] = TableLayout(
    name=lambda queue: queue.name,
    columns=[
        Column("QUEUE", lambda queue: queue.name + (" (paused)" if queue.settings.paused else "")),
        Column("WAITING", lambda queue: f"{'' if queue.exact else '~'}{queue.depth:,}"),
        Column("OLDEST", lambda queue: span(queue.oldest_s * 1000) if queue.depth else "–"),
        Column("RUNNING", lambda q: f"{q.running:,}" + (f"/{q.settings.cap:,}" if q.settings.cap else "")),
        Column("WORKERS", lambda queue: str(queue.workers)),
        Column("SLOTS", lambda queue: f"{queue.slots:,}"),
        Column("BOUND", lambda q: _bound(q.settings), wide=True),
        Column("ISOLATION", lambda queue: queue.settings.min_isolation, wide=True),
        Column("PATIENCE", lambda queue: format_duration(queue.settings.patience_s), wide=True),
        Column("MAY HELP", lambda queue: ",".join(queue.settings.may_help), wide=True),
        Column("PLACEMENT", lambda queue: queue.settings.placement, wide=True),
    ],
    empty="no queues",
)


@click.group(cls=Group)
def queues() -> None:
    """List queues and change their settings."""


@queues.command("list")
@connected
async def list_queues(client: AsyncClient, out: Output) -> None:
    """List queues with their depth, running executions and limits."""
    found = await client.queues()
    out.listed(found, found.items, QUEUES)
    for limit in found.limits if out.is_text else ():
        echo(clean(_limit_line(limit)))


@queues.command("set")
@click.argument("name")
@click.option("--cap", type=click.IntRange(0), metavar="N", help="Maximum running executions; 0: unlimited.")
@click.option(
    "--lease", metavar="DURATION", help="Time without a heartbeat after which a worker of this queue is lost."
)
@click.option("--patience", metavar="DURATION", help="Waiting time after which its executions may preempt others.")
@click.option("--max-duration", metavar="DURATION", help="Upper bound of every timeout; '' for none.")
@click.option("--placement", type=click.Choice(["auto", "best_fit", "least_loaded"]), help="Placement policy.")
@click.option("--may-help", metavar="QUEUE,...", help="Queues that its workers serve while it is empty; '' for none.")
@click.option("--min-isolation", type=click.Choice(LEVELS), help="Least isolation of its programs and functions.")
@click.option("--pause/--resume", default=None, help="Pause or resume the queue.")
@connected
async def set_queue(
    client: AsyncClient,
    out: Output,
    /,
    name: str,
    cap: int | None,
    lease: str | None,
    patience: str | None,
    max_duration: str | None,
    placement: Placement | None,
    may_help: str | None,
    min_isolation: MinIsolation | None,
    pause: bool | None,
) -> None:
    """Change a queue's settings."""
    changes: dict[str, Any] = {} if cap is None else {"cap": cap or None}
    if lease is not None:
        changes["lease_s"] = seconds(lease)
    if patience is not None:
        changes["patience_s"] = seconds(patience)
    if max_duration is not None:
        changes["max_duration_s"] = seconds(max_duration) if max_duration else None
    if placement is not None:
        changes["placement"] = placement
    if may_help is not None:
        changes["may_help"] = [word for word in may_help.split(",") if word]
    if min_isolation is not None:
        changes["min_isolation"] = min_isolation
    if pause is not None:
        changes["paused"] = pause
    if not changes:
        raise click.UsageError("Nothing to change. Example: mainspring queues set long --cap 10")
    out.row(await client.set_queue(name, changes), QUEUES)


@queues.command
@click.argument("name")
@connected
async def pause(client: AsyncClient, out: Output, name: str) -> None:
    """Pause a queue: its executions wait until it is resumed. Running ones continue."""
    out.row(await client.set_queue(name, {"paused": True}), QUEUES)


@queues.command
@click.argument("name")
@connected
async def resume(client: AsyncClient, out: Output, name: str) -> None:
    """Resume a paused queue."""
    out.row(await client.set_queue(name, {"paused": False}), QUEUES)


@queues.command("isolate")
@click.argument("level", type=click.Choice(LEVELS))
@connected
async def isolate(client: AsyncClient, out: Output, /, level: MinIsolation) -> None:
    """Set the least isolation of programs and functions in all queues of the tenant.

    A queue can require more (`queues set NAME --min-isolation`), and a job can ask for more, but neither for less.
    """
    found = await client.set_min_isolation(level)
    out.listed(found, found.items, QUEUES)


@click.command
@click.argument("execution")
@connected
async def why(client: AsyncClient, out: Output, execution: str) -> None:
    """Explain why an execution has not started. EXECUTION is an id, a unique prefix of one, or @last."""
    show_why(out, await client.why(execution))


def show_why(out: Output, found: wire.Why) -> None:
    if not out.is_text:
        out.value(found)
        return
    echo(clean(f"{found.job} {found.execution_id or ''} {found.state or ''}".rstrip()))
    if found.started_by is not None:
        echo(clean(f"  started by {found.started_by}"))
    for reason in found.reasons:
        until = f", until {local(reason.until)}" if reason.until is not None else ""
        held = f"; held by {', '.join(map(str, reason.holders))}" if reason.holders else ""
        echo(clean(f"  {reason.message}{until}{held}"))


def _bound(settings: QueueSettings) -> str:
    return "" if settings.max_duration_s is None else format_duration(settings.max_duration_s)


def _limit_line(limit: wire.LimitState) -> str:
    if limit.per_s is not None:
        return f"rate {limit.key}: {limit.limit} per {limit.per_s:g} s"
    holders = ", ".join(f"{holder.job} {holder.execution_id}" for holder in limit.holders[:5])
    return f"concurrency {limit.key}: {len(limit.holders)} of {limit.limit}" + (
        f", held by {holders}" if holders else ""
    )
