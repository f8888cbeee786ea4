"""SIGTERM ends a process that is still waiting for what it connects to: containers are stopped at any time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes import free_port, until
from tests.support.program import program

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("words", "variable", "waits"),
    [
        (("serve", "--port", "0"), "MAINSPRING_DATABASE_URL=postgresql://x@127.0.0.1:{}/x", "database.unreachable"),
        (("worker",), "MAINSPRING_URL=http://127.0.0.1:{}", "cannot connect"),
    ],
    ids=["server", "worker"],
)
async def test_a_waiting_process_ends(tmp_path: Path, words: tuple[str, ...], variable: str, waits: str) -> None:
    name, _, value = variable.format(free_port()).partition("=")
    with program(tmp_path, *words, env={name: value, "MAINSPRING_TOKEN": "ms_none"}) as waiting:
        await until("a failed connection in the log", lambda: waits in waiting.text, within_s=30)
        assert await waiting.end() == 0, waiting.text
