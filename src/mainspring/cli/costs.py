"""`mainspring costs`: what executions used and cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainspring import wire
from mainspring.cli.connect import connected
from mainspring.cli.output import Output, echo
from mainspring.display.text import clean
from mainspring.display.times import span

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

HEAD = ("", "EXECUTIONS", "FAILED", "HOURS", "CORE H", "GIB H", "GPU H", "MEAN", "P95", "COST")

SHOWN = ("cpu", "memory", "gpu")


@click.command
@click.option("--days", default=30.0, show_default=True, metavar="N", help="How many days to look back, at most 35.")
@click.option("--jobs", default=20, show_default=True, metavar="N", help="How many of the most expensive jobs to list.")
@connected
async def costs(client: AsyncClient, out: Output, days: float, jobs: int) -> None:
    """Show executions, hours and costs by tenant, queue and job. Prices are set with `serve --prices`."""
    found = await client.costs(days=days, jobs=jobs)
    if not out.is_text:
        out.value(found)
        return
    for title, usages in (("TENANT", found.tenants), ("QUEUE", found.queues), ("JOB", found.jobs)):
        if usages:
            _table(title, usages, found.currency)
    if found.cost is None:
        echo("no prices are set: start the server with --prices, such as slot=0.01,cpu=0.03,currency=EUR", err=True)
    elif not found.jobs:
        echo("nothing has ended in that time", err=True)


def _table(title: str, usages: list[wire.Usage], currency: str) -> None:
    rows = [(title, *HEAD[1:])] + [_row(usage, currency) for usage in usages]
    widths = [max(len(row[n]) for row in rows) for n in range(len(HEAD))]
    for name, *numbers in rows:
        echo("  ".join([name.ljust(widths[0]), *(n.rjust(w) for n, w in zip(numbers, widths[1:], strict=True))]))
    echo("")


def _row(usage: wire.Usage, currency: str) -> tuple[str, ...]:
    return (
        clean(usage.name),
        f"{usage.executions:,}",
        f"{usage.failed:,}",
        f"{usage.run_hours:,.2f}",
        *(f"{usage.resource_hours[name]:,.2f}" if name in usage.resource_hours else "–" for name in SHOWN),
        "–" if usage.mean_ms is None else span(usage.mean_ms),
        "–" if usage.p95_ms is None else span(usage.p95_ms),
        "–" if usage.cost is None else f"{usage.cost:,.4f} {currency}".strip(),
    )
