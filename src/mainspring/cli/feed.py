"""The live feed: one line per execution when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING
from uuid import UUID

import click

from mainspring import wire
from mainspring.display.text import clean
from mainspring.display.times import span
from mainspring.domain.execution import LIVE, State

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

GLYPHS: dict[State, tuple[str, str]] = {
    "succeeded": ("✔", "green"),
    "running": ("▶", "blue"),
    "failed": ("✖", "red"),
    "waiting": ("↻", "yellow"),
    "queued": ("◌", "bright_black"),
    "blocked": ("⧗", "magenta"),
    "lost": ("☠", "red"),
    "cancelled": ("⊘", "bright_black"),
    "skipped": ("⤼", "bright_black"),
    "timed_out": ("⏱", "red"),
}
# Time, version and twelve bits of the hash: distinguishes executions, and is accepted as an id.
SHORT_ID = 18
HOLD_S = 1.0
REMEMBERED = 10_000
"""Of so many executions the feed knows what it printed last, so that nothing is printed twice."""


def feed_line(execution: wire.Execution, *, color: bool) -> str:
    """Format an execution as one line: `12:00:05 ✔ hello  0192f3c1-2b4d-8a1f  late 3 ms  took 6 ms`."""
    glyph, hue = GLYPHS[execution.state]
    at = execution.finished_at or execution.started_at or execution.due_at
    parts = [clean(execution.title), str(execution.execution_id)[:SHORT_ID]]
    if execution.state != "succeeded":
        parts.append(_outcome(execution))
    if execution.state == "waiting":
        parts.append(f"{'retry' if execution.attempt else 'due'} at {execution.due_at.astimezone():%H:%M:%S}")
    elif execution.late_ms is not None:
        parts.append(f"late {span(execution.late_ms)}")
    if execution.duration_ms is not None:
        parts.append(f"took {span(execution.duration_ms)}")
    shown = click.style(glyph, fg=hue) if color else glyph
    return f"{at.astimezone():%H:%M:%S} {shown} " + "  ".join(parts)


async def follow(client: AsyncClient, *, hold_s: float = HOLD_S) -> AsyncGenerator[wire.Execution, None]:
    """Yield executions when they end, and when they start if they last longer than `hold_s`.

    The hold avoids two lines for every quick execution. The feed survives server restarts.
    """
    ready: asyncio.Queue[wire.Execution | None] = asyncio.Queue()
    held: dict[UUID, asyncio.TimerHandle] = {}
    shown: dict[UUID, tuple[State, int]] = {}

    def is_news(execution: wire.Execution) -> bool:
        """Whether no line has shown it: messages may arrive again after a reconnection, and in another order."""
        state, attempt = shown.get(execution.execution_id, ("waiting", -1))
        if state in LIVE:
            return (execution.state, execution.attempt) != (state, attempt) and execution.attempt >= attempt
        return False

    def publish(execution: wire.Execution) -> None:
        if timer := held.pop(execution.execution_id, None):
            timer.cancel()
        if is_news(execution):
            shown[execution.execution_id] = (execution.state, execution.attempt)
            ready.put_nowait(execution)
        while len(shown) > REMEMBERED:
            del shown[next(iter(shown))]

    async def read() -> None:
        async for execution in client.feed():
            if execution.state != "running":
                publish(execution)
            elif execution.execution_id not in held and is_news(execution):
                timer = asyncio.get_running_loop().call_later(hold_s, publish, execution)
                held[execution.execution_id] = timer

    reader = asyncio.create_task(read())
    reader.add_done_callback(lambda _: ready.put_nowait(None))
    try:
        while (execution := await ready.get()) is not None:
            yield execution
        await reader
    finally:
        reader.cancel()
        for timer in held.values():
            timer.cancel()


def _outcome(execution: wire.Execution) -> str:
    word = execution.state.replace("_", " ")
    if execution.state == "failed" and execution.exit_code is not None:
        return f"{word}: exit {execution.exit_code}"
    why = (execution.error if execution.state in ("failed", "waiting", "lost") else None) or execution.reason
    first = (why or "").strip().partition("\n")[0]
    return f"{word}: {clean(first[:100])}" if first else word
