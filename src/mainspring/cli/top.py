"""`mainspring top`: queues, workers and executions, live in a terminal."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

from mainspring import wire
from mainspring.cli.arguments import seconds
from mainspring.cli.connect import connected
from mainspring.cli.feed import feed_line
from mainspring.cli.output import Column, Output, TableLayout, aligned, echo, is_terminal
from mainspring.cli.queues import QUEUES
from mainspring.cli.screen import draw, screen
from mainspring.cli.tables.executions import EXECUTIONS
from mainspring.cli.tables.fleet import WORKERS
from mainspring.display.text import clean, progress_text
from mainspring.display.times import local, now, span
from mainspring.domain.execution import FINAL

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

T = TypeVar("T")

MOST_RUNNING = 50
MOST_ENDED = 50
MOST_WORKERS = 20

RUNNING: TableLayout[wire.Execution] = TableLayout(
    name=EXECUTIONS.name,
    columns=[
        *[column for column in EXECUTIONS.columns if column.title in ("ID", "JOB")],
        Column("RUNS FOR", lambda e: "–" if e.started_at is None else span(_ms_since(e))),
        Column("WORKER", lambda e: e.worker or "–", wraps=True),
        Column("PROGRESS", lambda e: "" if e.progress is None else progress_text(e.progress), wraps=True),
    ],
    empty="nothing runs",
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one refresh shows."""

    queues: list[wire.Queue]
    workers: list[wire.Worker]
    running: list[wire.Execution]
    ended: list[wire.Execution]


@click.command
@click.option(
    "--interval", type=seconds, default="2s", show_default=True, metavar="DURATION", help="Time between updates."
)
@click.option("--once", is_flag=True, help="Print one update and exit, as without a terminal.")
@connected
async def top(client: AsyncClient, out: Output, interval: float, once: bool) -> None:
    """Show queues, workers, and running and ended executions, live. Ctrl-C ends it."""
    if not out.is_text:
        raise click.UsageError("top is for a terminal. For programs: mainspring executions list -o json")
    if once or not is_terminal(sys.stdout):
        echo("\n".join(lines(await _read(client), client.server.url)))
        return
    with screen():
        while True:
            draw(lines(await _read(client), client.server.url))
            await asyncio.sleep(max(0.2, interval))


async def _read(client: AsyncClient) -> Snapshot:
    queues, workers, running, recent = await asyncio.gather(
        client.queues(),
        client.workers(),
        client.executions(state=["running"], limit=MOST_RUNNING),
        client.executions(limit=MOST_ENDED),
    )
    ended = [execution for execution in recent.items if execution.state in FINAL and execution.finished_at is not None]
    ended.sort(key=lambda execution: execution.finished_at or execution.due_at, reverse=True)
    return Snapshot(queues.items, workers.items, running.items, ended)


def lines(found: Snapshot, url: str) -> list[str]:
    """A snapshot as lines, the most important ones first."""
    busy = [worker for worker in found.workers if worker.state not in ("lost", "offline")]
    slots, used = sum(worker.slots for worker in busy), sum(worker.busy for worker in busy)
    waiting = sum(queue.depth for queue in found.queues)
    return [
        f"mainspring top · {url} · {local(now())}",
        f"{waiting:,} waiting · {used:,} of {slots:,} slots busy · {len(busy):,} workers",
        "",
        *_table(found.queues, QUEUES),
        "",
        *_table(found.workers[:MOST_WORKERS], WORKERS),
        "",
        *_table(found.running, RUNNING),
        "",
        *[clean(feed_line(execution, color=False)) for execution in found.ended],
    ]


def _table(items: list[T], layout: TableLayout[T]) -> list[str]:
    columns = [column for column in layout.columns if not column.wide]
    rows = [[clean(column.text(item)) for column in columns] for item in items]
    return aligned([[column.title for column in columns], *rows]) if rows else [layout.empty]


def _ms_since(execution: wire.Execution) -> float:
    started = execution.started_at or now()
    return max(0.0, (now() - started).total_seconds() * 1000)
