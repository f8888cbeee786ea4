"""How far an execution is, in one line that rewrites itself on a terminal."""

from __future__ import annotations

import sys

import click

from mainspring import wire
from mainspring.cli.output import clean, is_terminal, remark
from mainspring.cli.times import span

_CLEAR = "\r\x1b[K"
_STEP = 10.0


def progress_text(progress: wire.Progress) -> str:
    """`41 % · 410/1000 · ~12 s left · loading`."""
    parts = []
    if progress.percent is not None:
        parts.append(f"{progress.percent:.0f} %")
    # Shares of a hundred say nothing that the percentage does not.
    if progress.total is None:
        parts.append(f"{progress.done:g} done")
    elif progress.total != 100:
        parts.append(f"{progress.done:g}/{progress.total:g}")
    if progress.eta_s:
        parts.append(f"~{span(max(1.0, round(progress.eta_s)) * 1000)} left")
    if progress.message:
        parts.append(clean(progress.message))
    return " · ".join(parts)


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
            remark(text)

    def hide(self) -> None:
        """Before anything else is written."""
        if self._shown:
            self._shown = ""
            click.echo(_CLEAR, nl=False, err=True)
