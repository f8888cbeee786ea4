"""`mainspring forecast`: the load expected in the coming days."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from mainspring import wire
from mainspring.cli.connect import connected
from mainspring.cli.output import Output, echo
from mainspring.display.text import clean
from mainspring.display.times import local, span

if TYPE_CHECKING:
    from mainspring.client import AsyncClient


@click.command
@click.option("--days", default=7, show_default=True, metavar="N", help="How many days to look ahead, at most 14.")
@click.option(
    "--workers", type=click.IntRange(1), metavar="N", help="Simulate N workers, and show how long queues wait."
)
@click.option("--slots", type=click.IntRange(1), metavar="N", help="Slots of each of these workers.  [default: 8]")
@connected
async def forecast(client: AsyncClient, out: Output, days: int, workers: int | None, slots: int | None) -> None:
    """Show expected fires and busy slots by day and queue, crowded minutes, and how to spread them.

    With --workers, also how long executions would wait for a slot of these workers.
    """
    found = await client.forecast(days=days, workers=workers, slots=slots)
    if not out.is_text:
        out.value(found)
        return
    _table(("DAY", "FIRES", "BUSIEST HOUR", "FIRES", "SLOTS"), _days(found.hours))
    _table(
        ("QUEUE", "FIRES", "P50", "P95", "SLOTS", "AT P95", "BUSIEST HOUR"), [_queue(queue) for queue in found.queues]
    )
    crowded = [(local(minute.at), f"{minute.due:,}", _schedules(minute)) for minute in found.crowded]
    _table(("CROWDED MINUTE", "DUE", "SCHEDULES"), crowded)
    for spread in found.spread:
        echo(_advice(spread))
        if spread.jitter is not None:
            echo(f"  mainspring jobs edit {clean(spread.examples[0])} --jitter {spread.jitter}")
    if found.capacity is not None:
        _print_capacity(found.capacity)
    for note in found.notes:
        echo(note, err=True)


def _print_capacity(found: wire.CapacityForecast) -> None:
    rows = [
        (clean(q.name), f"{q.executions:,}", span(q.p50_ms), span(q.p95_ms), span(q.max_ms), local(q.longest_at))
        for q in found.queues
    ]
    head = f"{found.workers} × {found.slots} SLOTS"
    _table((head, "EXECUTIONS", "WAIT P50", "P95", "MAX", "DUE AT"), rows)
    minutes = [(local(minute.at), f"{minute.due:,}", span(minute.max_ms)) for minute in found.minutes]
    _table(("LONGEST WAITS", "DUE", "WAIT"), minutes)
    echo(f"{found.busy:.0%} of the slots' time is used until {local(found.until_at)}")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if not rows:
        return
    widths = [max(len(row[n]) for row in (head, *rows)) for n in range(len(head))]
    for row in (head, *rows):
        echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    echo("")


def _days(hours: Sequence[wire.ForecastHour]) -> list[tuple[str, ...]]:
    """By day of this machine's clock."""
    days: dict[str, list[wire.ForecastHour]] = {}
    for hour in hours:
        days.setdefault(f"{hour.at.astimezone():%Y-%m-%d}", []).append(hour)
    found: list[tuple[str, ...]] = []
    for day, of_day in days.items():
        busiest = max(of_day, key=lambda hour: hour.fires)
        slots = max(hour.slots for hour in of_day)
        fires = sum(hour.fires for hour in of_day)
        found.append((day, f"{fires:,}", f"{busiest.at.astimezone():%H:%M}", f"{busiest.fires:,}", f"{slots:,.1f}"))
    return found


def _queue(queue: wire.QueueForecast) -> tuple[str, ...]:
    slots = ("–" if n is None else f"{n:,.1f}" for n in (queue.slots, queue.slots_p95))
    return (
        clean(queue.name),
        f"{queue.fires:,}",
        span(queue.p50_ms),
        span(queue.p95_ms),
        *slots,
        local(queue.busiest_at),
    )


def _schedules(minute: wire.CrowdedMinute) -> str:
    return "; ".join(f"{clean(one.schedule)} ({one.due:,})" for one in minute.schedules[:3])


def _advice(spread: wire.Spread) -> str:
    shown = ", ".join(clean(name) for name in spread.examples[:3])
    more = f" and {spread.jobs - 3:,} more" if spread.jobs > 3 else ""
    change = f"jitter: {spread.jitter}" if spread.jitter else f"run {spread.shift_min} min later"
    return f"{local(spread.at)}: {spread.due:,} due, {spread.then:,} with {change} for {shown}{more}"
