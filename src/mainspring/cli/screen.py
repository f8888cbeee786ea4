"""A terminal screen that is drawn again and again, and restored at the end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from mainspring.cli.output import display_width
from mainspring.display.terminal import printable

_ENTER, _LEAVE, _HOME = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H"
_REST_OF_LINE, _REST_OF_SCREEN = "\x1b[K", "\x1b[J"


@contextmanager
def screen() -> Iterator[None]:
    """Use the alternate screen without a cursor; what the terminal showed before comes back."""
    click.echo(_ENTER, nl=False)
    try:
        yield
    finally:
        click.echo(_LEAVE, nl=False)


def draw(lines: Sequence[str]) -> None:
    """Show the first lines that fit, each cut at the width of the terminal."""
    size = shutil.get_terminal_size()
    shown = "".join(f"{cut(printable(line), size.columns)}{_REST_OF_LINE}\n" for line in lines[: size.lines - 1])
    click.echo(_HOME + shown + _REST_OF_SCREEN, nl=False)


def cut(line: str, width: int) -> str:
    """The beginning of a line that takes at most `width` columns."""
    if display_width(line) <= width:
        return line
    used = 0
    for at, character in enumerate(line):
        used += display_width(character)
        if used > width:
            return line[:at]
    return line
