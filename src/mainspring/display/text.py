"""Plain text for terminals and pages."""

from __future__ import annotations

from mainspring import wire
from mainspring.display.times import span


def clean(text: str) -> str:
    """Escape characters that would move the cursor or change the terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def progress_text(progress: wire.Progress) -> str:
    """`41 % · 410/1000 · ~12 s left · loading`."""
    parts = []
    if progress.percent is not None:
        parts.append(f"{progress.percent:.0f} %")
    # With a total of 100, the count repeats the percentage.
    if progress.total is None:
        parts.append(f"{progress.done:g} done")
    elif progress.total != 100:
        parts.append(f"{progress.done:g}/{progress.total:g}")
    if progress.eta_s:
        parts.append(f"~{span(max(1.0, round(progress.eta_s)) * 1000)} left")
    if progress.message:
        parts.append(clean(progress.message))
    return " · ".join(parts)
