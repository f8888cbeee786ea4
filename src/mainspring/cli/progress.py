"""How far an execution is, in one line that rewrites itself on a terminal."""

from __future__ import annotations

import sys

import click

from mainspring import wire
from mainspring.cli.output import is_terminal, print_message
from mainspring.display.text import progress_text

_CLEAR = "\r\x1b[K"
_STEP = 10.0


class ProgressLine:
    """On a terminal the last line, above which output goes by; elsewhere a remark for every tenth."""

    def __init__(self) -> None:
        self._lives = is_terminal(sys.stderr)
        self._shown = ""
        self._told = -_STEP

    def show(self, progress: wire.Progress) -> None:
        text = progress_text(progress)
        if self._lives:
            self._shown = text
            click.echo(_CLEAR + text, nl=False, err=True)
        elif (progress.percent or 0.0) >= self._told + _STEP:
            self._told = (progress.percent or 0.0) // _STEP * _STEP
            print_message(text)

    def hide(self) -> None:
        """Before anything else is written."""
        if self._shown:
            self._shown = ""
            click.echo(_CLEAR, nl=False, err=True)
