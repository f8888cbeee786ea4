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
from mainspring.display.terminal import printable, printable_json
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
        self._printed = False

    @property
    def is_text(self) -> bool:
        """Whether to print for a reader, not for a program."""
        return self.format in ("table", "wide")

    def value(self, value: Any) -> None:
        """Print a value as YAML, or as JSON: one line for jsonl, otherwise indented."""
        content = encode(value)
        if self.format == "yaml":
            separator = "---\n" if self._printed else ""  # several documents in one stream
            self._printed = True
            echo(separator + as_yaml(msgspec.json.decode(content)), nl=False)
            return
        click.echo(printable_json(content if self.format == "jsonl" else msgspec.json.format(content, indent=2)))

    def page(self, page: wire.Page[T], layout: TableLayout[T]) -> None:
        if self.format in ("json", "yaml"):
            self.value(page)
        elif self.format == "jsonl":
            for item in page.items:
                self.value(item)
        elif self.format == "name":
            for item in page.items:
                echo(layout.name(item))
        elif not page.items:
            print_message(layout.empty)
        else:
            self._table(page.items, [column for column in layout.columns if self.format == "wide" or not column.wide])
        if self.is_text and page.next_cursor is not None:
            print_message("more rows exist; raise --limit to see them")

    def one(self, item: T, layout: TableLayout[T], details: Callable[[T], str]) -> None:
        """Print one item: `details` as text, or its name or JSON."""
        if self.is_text:
            echo(details(item))
        elif self.format == "name":
            echo(layout.name(item))
        else:
            self.value(item)

    def row(self, item: T, layout: TableLayout[T]) -> None:
        """Print one item as a table of one row, or its name or JSON."""
        if self.is_text:
            self.page(wire.Page(items=[item]), layout)
        elif self.format == "name":
            echo(layout.name(item))
        else:
            self.value(item)

    def listed(self, answer: Any, items: list[T], layout: TableLayout[T]) -> None:
        """Print the items of an answer that is more than a page of them: a table or names, or the answer as JSON."""
        if self.is_text or self.format == "name":
            self.page(wire.Page(items=items), layout)
        else:
            self.value(answer)

    def deleted(self, name: str, label: str | None = None) -> None:
        """Report a deletion, which has no result: -o json prints nothing on stdout."""
        echo(
            clean(name if self.format == "name" else f"{label or name} deleted"),
            err=self.format in ("json", "jsonl", "yaml"),
        )

    def _table(self, items: list[T], columns: list[Column[T]]) -> None:
        if is_terminal(sys.stdout):
            # -o wide shows everything: its lines may be longer than the terminal is wide.
            width = WIDEST if self.format == "wide" else shutil.get_terminal_size().columns
            _print_rich(items, _fitting(items, columns, width), width)
        else:
            rows = [[clean(column.text(item)) for column in columns] for item in items]
            echo("\n".join(aligned([[column.title for column in columns], *rows])))


def as_yaml(value: Any) -> str:
    """A JSON value as YAML, in the order of the API."""
    import yaml

    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=WIDEST))


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


def echo(text: str = "", *, nl: bool = True, err: bool = False) -> None:
    """Print text. All output of commands comes through here, so that nothing in it can control the terminal."""
    click.echo(printable(text), nl=nl, err=err)


def print_message(text: str) -> None:
    echo(text, err=True)


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
