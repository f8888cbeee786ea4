from __future__ import annotations

import re
from contextlib import aclosing
from datetime import timedelta
from uuid import UUID

import pytest

from mainspring.cli.feed import GLYPHS, SHORT_ID, feed_line, follow
from mainspring.client import AsyncClient, Server
from mainspring.domain.errors import Unauthenticated
from mainspring.domain.execution import STATES
from tests.support.scripted_server import EXECUTION_ID, T0, Scripted, event, events, execution, problem, running

SHORT = str(EXECUTION_ID)[:SHORT_ID]


def test_a_success_is_one_short_line() -> None:
    clock = T0.astimezone().strftime("%H:%M:%S")
    assert feed_line(execution(), color=False) == f"{clock} ✔ hello  {SHORT}  late 3 ms  took 6 ms"


def test_everything_else_has_its_word_and_the_reason() -> None:
    def line(**changes: object) -> str:
        return feed_line(execution(**changes), color=False)[9:]

    assert line(state="failed", exit_code=2) == f"✖ hello  {SHORT}  failed: exit 2  late 3 ms  took 6 ms"
    lost = line(state="lost", exit_code=None, error="its worker\x1b[2J went\nmore", duration_ms=None)
    assert lost == f"☠ hello  {SHORT}  lost: its worker\\x1b[2J went  late 3 ms"
    skipped = line(state="skipped", started_at=None, duration_ms=None, reason="the last one still runs")
    assert skipped == f"⤼ hello  {SHORT}  skipped: the last one still runs"
    again = T0 + timedelta(seconds=60)
    waiting = line(state="waiting", due_at=again, finished_at=None, duration_ms=None, error="exit code 1")
    assert waiting == f"↻ hello  {SHORT}  waiting: exit code 1  retry at {again.astimezone():%H:%M:%S}"
    assert line(state="timed_out").startswith(f"⏱ hello  {SHORT}  timed out  ")


def test_a_start_that_was_early_by_the_workers_clock_is_not_late() -> None:
    assert "late 0 ms" in feed_line(execution(started_at=T0 - timedelta(seconds=1)), color=False)


def test_every_state_has_a_glyph_and_color_is_only_the_glyphs() -> None:
    assert set(GLYPHS) == set(STATES)
    assert len({glyph for glyph, _ in GLYPHS.values()}) == len(STATES)
    for state in STATES:
        plain, colored = (feed_line(execution(state=state), color=color) for color in (False, True))
        assert "\x1b" in colored
        assert re.sub(r"\x1b\[\d*m", "", colored) == plain


@pytest.mark.anyio
async def test_a_quick_execution_is_told_once_across_a_reconnect(server: Scripted) -> None:
    pieces = [
        [event("execution", running(), "1")],
        [event("execution", running(), "1"), event("execution", execution(), "2")],
        [event("execution", execution(state="failed", execution_id=UUID(int=9)), "3")],
    ]
    server.on("GET", "/api/v1/stream", [events(*piece) for piece in pieces])
    async with (
        AsyncClient(server=Server(server.url)) as client,
        aclosing(follow(client, hold_s=3600)) as feed,
    ):
        assert [(await anext(feed)).state, (await anext(feed)).state] == ["succeeded", "failed"]


@pytest.mark.anyio
async def test_a_long_one_is_told_when_it_starts(server: Scripted) -> None:
    server.on("GET", "/api/v1/stream", events(event("execution", running(), "1")))
    async with AsyncClient(server=Server(server.url)) as client, aclosing(follow(client, hold_s=0)) as feed:
        assert (await anext(feed)).state == "running"


@pytest.mark.anyio
async def test_nothing_is_told_again_after_its_end(server: Scripted) -> None:
    """A message about its start may arrive after the one about its end."""
    pieces = [
        [event("execution", execution(), "1"), event("execution", running(), "2")],
        [event("execution", execution(), "3")],
        [event("execution", execution(state="failed", execution_id=UUID(int=9)), "4")],
    ]
    server.on("GET", "/api/v1/stream", [events(*piece) for piece in pieces])
    async with AsyncClient(server=Server(server.url)) as client, aclosing(follow(client, hold_s=0)) as feed:
        assert [(await anext(feed)).state, (await anext(feed)).state] == ["succeeded", "failed"]


@pytest.mark.anyio
async def test_a_refusal_ends_the_feed(server: Scripted) -> None:
    server.on("GET", "/api/v1/stream", problem(401, "unauthenticated", "no valid token"))
    async with AsyncClient(server=Server(server.url)) as client:
        with pytest.raises(Unauthenticated):
            await anext(follow(client))
