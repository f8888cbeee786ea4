"""The progress line of an execution."""

from __future__ import annotations

import shutil
import sys

import click

from mainspring import wire
from mainspring.cli.output import is_terminal, print_message
from mainspring.display.text import progress_text

_CLEAR = "\r\x1b[K"
_STEP_PERCENT = 10.0
BAR_WIDTH = 24
_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(percent: float) -> str:
    """A bar of a fixed width, in eighths of a character: `▕█████████▉              ▏`."""
    eighths = round(min(max(percent, 0.0), 100.0) / 100 * BAR_WIDTH * 8)
    full, rest = divmod(eighths, 8)
    filled = "█" * full + (_EIGHTHS[rest] if rest else "")
    return f"▕{filled.ljust(BAR_WIDTH)}▏"


class ProgressLine:
    """On a terminal the last line, rewritten in place; elsewhere one message per ten percent."""

    def __init__(self) -> None:
        self._rewrites = is_terminal(sys.stderr)
        self._shown = ""
        self._printed_percent = -_STEP_PERCENT

    def show(self, progress: wire.Progress) -> None:
        text = progress_text(progress)
        if self._rewrites:
            self._shown = f"{bar(progress.percent)} {text}" if progress.percent is not None else text
            click.echo(_CLEAR + self._shown[: shutil.get_terminal_size().columns - 1], nl=False, err=True)
        elif (progress.percent or 0.0) >= self._printed_percent + _STEP_PERCENT:
            self._printed_percent = (progress.percent or 0.0) // _STEP_PERCENT * _STEP_PERCENT
            print_message(text)

    def hide(self) -> None:
        """Clear the line; call this before writing anything else."""
        if self._shown:
            self._shown = ""
            click.echo(_CLEAR, nl=False, err=True)
