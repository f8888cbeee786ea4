"""Print results as aligned text or as the API's JSON. Results go to stdout, messages to stderr."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any, Generic, TypeVar

import click
import msgspec

from mainspring import wire
from mainspring.codec import encode
from mainspring.display.text import clean

T = TypeVar("T")

WIDEST = 10_000
MIN_WRAPPED_WIDTH = 12
"""A column that wraps is not narrowed below this while optional columns can be left out."""


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column of a table.

    wide: only with -o wide. wraps: shrinks on a narrow terminal. optional: left out if the table would still be too
    wide, the last one first.
    """

    title: str
    text: Callable[[T], str]
    wide: bool = False
    color: Callable[[T], str | None] | None = None
    wraps: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class TableLayout(Generic[T]):
    """How items of a type are printed: the name for -o name, the columns, the message for an empty table."""

    name: Callable[[T], str]
    columns: Sequence[Column[T]]
    empty: str


class Output:
    """Prints the results of one command in the format that -o selects."""

    def __init__(self, format: str = "table") -> None:
        self.format = format

    @property
    def is_text(self) -> bool:
        """Whether to print for a reader, not for a program."""
        return self.format in ("table", "wide")

    def value(self, value: Any) -> None:
        """Print a value as JSON: one line for jsonl, otherwise indented."""
        content = encode(value)
        click.echo(content if self.format == "jsonl" else msgspec.json.format(content, indent=2))

    def page(self, page: wire.Page[T], layout: TableLayout[T]) -> None:
        if self.format == "json":
            self.value(page)
        elif self.format == "jsonl":
            for item in page.items:
                self.value(item)
        elif self.format == "name":
            for item in page.items:
                click.echo(layout.name(item))
        elif not page.items:
            print_message(layout.empty)
        else:
            self._table(page.items, [column for column in layout.columns if self.format == "wide" or not column.wide])
        if self.is_text and page.next_cursor is not None:
            print_message("more rows exist; raise --limit to see them")

    def one(self, item: T, layout: TableLayout[T], details: Callable[[T], str]) -> None:
        """Print one item: `details` as text, or its name or JSON."""
        if self.is_text:
            click.echo(details(item))
        elif self.format == "name":
            click.echo(layout.name(item))
        else:
            self.value(item)

    def deleted(self, name: str, label: str | None = None) -> None:
        """Report a deletion, which has no result: -o json prints nothing on stdout."""
        click.echo(
            clean(name if self.format == "name" else f"{label or name} deleted"),
            err=self.format in ("json", "jsonl"),
        )

    def _table(self, items: list[T], columns: list[Column[T]]) -> None:
        if is_terminal(sys.stdout):
            # -o wide shows everything: its lines may be longer than the terminal is wide.
            width = WIDEST if self.format == "wide" else shutil.get_terminal_size().columns
            _print_rich(items, _fitting(items, columns, width), width)
        else:
            rows = [[clean(column.text(item)) for column in columns] for item in items]
            click.echo("\n".join(aligned([[column.title for column in columns], *rows])))


def aligned(rows: Sequence[Sequence[str]], indent: str = "") -> list[str]:
    """Format rows as lines, each column as wide as its longest cell."""
    widths = [max(display_width(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    return [
        indent + "  ".join(text + " " * (w - display_width(text)) for text, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def display_width(text: str) -> int:
    """The number of terminal columns that a text takes."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1 for c in text)


def print_message(text: str) -> None:
    click.echo(text, err=True)


def is_terminal(stream: IO[str]) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def has_color(stream: IO[str]) -> bool:
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def _fitting(items: list[T], columns: list[Column[T]], width: int) -> list[Column[T]]:
    """Leave out optional columns, the last one first, until the table fits."""

    def needed(column: Column[T]) -> int:
        longest = max(display_width(text) for text in (column.title, *(clean(column.text(item)) for item in items)))
        return 2 + (min(longest, MIN_WRAPPED_WIDTH) if column.wraps else longest)

    widths = {column.title: needed(column) for column in columns}
    for column in reversed(columns):
        if sum(widths.values()) - 2 <= width:
            break
        if column.optional:
            del widths[column.title]
    return [column for column in columns if column.title in widths]


def _print_rich(items: list[T], columns: list[Column[T]], width: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column.title, no_wrap=not column.wraps, overflow="fold" if column.wraps else "ellipsis")
    for item in items:
        cells = [(clean(column.text(item)), column.color(item) if column.color else None) for column in columns]
        table.add_row(*(Text(cell, style=color or "") for cell, color in cells))
    Console(width=width).print(table, soft_wrap=width == WIDEST)
