"""`mainspring executions export`: write executions to a file, page by page."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
import msgspec

from mainspring import wire
from mainspring.cli.connect import PAGE_SIZE, connected
from mainspring.cli.output import Output, echo, is_terminal, print_message
from mainspring.codec import encode
from mainspring.domain.execution import STATES, State
from mainspring.domain.filter import spell

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

COLUMNS = (
    "execution_id", "job", "job_id", "version", "state", "trigger", "queue", "priority", "attempt", "fire_at", "due_at",
    "queued_at", "started_at", "finished_at", "duration_ms", "exit_code", "worker", "reason", "error", "created_by",
    "params", "result",
)  # fmt: skip
RISKY = ("=", "+", "-", "@", "\t", "\r")
"""A cell that begins with one of these is a formula in spreadsheets."""


@click.command
@click.argument("filter_", nargs=-1, metavar="[FILTER]...")
@click.option("--job", metavar="JOB", help="Job name or id.")
@click.option(
    "--state", multiple=True, type=click.Choice(STATES), metavar="STATE", help="State, such as failed. Repeatable."
)
@click.option(
    "--format", "kind", type=click.Choice(["jsonl", "csv"]), default="jsonl", show_default=True, help="Format."
)
@click.option("--to", "target", metavar="FILE", default="-", help="File to write; - is stdout.  [default: -]")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Maximum executions.  [default: all]")
@connected
async def export(
    client: AsyncClient,
    out: Output,
    filter_: tuple[str, ...],
    job: str | None,
    state: tuple[State, ...],
    kind: str,
    target: str,
    limit: int | None,
) -> None:
    """Write executions as JSON lines or CSV, newest first. Takes the same filters as `executions list`.

    \b
    Examples:
      mainspring executions export --state failed since:7d --format csv --to failed.csv
      mainspring executions export --job report | jq .duration_ms
    """
    query = " ".join((*filter_, spell(job=job or "", state=state))).strip() if filter_ else None

    async def pages(write: Callable[[wire.Execution], None]) -> int:
        count, cursor = 0, None
        while limit is None or count < limit:
            page = await client.executions(
                job=None if query else job,
                state=() if query else state,
                limit=PAGE_SIZE if limit is None else min(PAGE_SIZE, limit - count),
                cursor=cursor,
                filter=query,
            )
            for execution in page.items:
                write(execution)
            count, cursor = count + len(page.items), page.next_cursor
            if cursor is None:
                break
        return count

    if target == "-":
        await pages(_writer(kind, sys.stdout))
        return
    path = Path(target)
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="") as file:
            count = await pages(_writer(kind, file))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    print_message(f"{count:,} execution{'' if count == 1 else 's'} written to {path}")


def _writer(kind: str, file: IO[str]) -> Callable[[wire.Execution], None]:
    """A function that writes one execution."""
    if kind == "jsonl":
        return lambda execution: _write(file, encode(execution).decode() + "\n")
    row = io.StringIO()
    rows = csv.writer(row, lineterminator="\n")

    def write(cells: Sequence[str]) -> None:
        rows.writerow(cells)
        _write(file, row.getvalue())
        row.seek(0)
        row.truncate()

    write(COLUMNS)
    return lambda execution: write(cells(execution))


def _write(file: IO[str], text: str) -> None:
    """Write as it is, for programs; on a terminal nothing in it can control the terminal."""
    if is_terminal(file):
        echo(text, nl=False)
    else:
        file.write(text)


def cells(execution: wire.Execution) -> list[str]:
    """The columns of an execution as text; lists and objects as JSON."""
    values = msgspec.to_builtins(execution)
    return [_cell(values[name]) for name in COLUMNS]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else str(value) if isinstance(value, int | float) else encode(value).decode()
    return f"'{text}" if isinstance(value, str) and text.startswith(RISKY) else text
