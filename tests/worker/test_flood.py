"""A program that floods its output slows down itself, not others on its worker."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from mainspring.domain.job import ShellTask
from mainspring.worker.executors.shell import _read
from mainspring.worker.isolation.spawn import OutputPipe
from mainspring.worker.output import MAX_BYTES
from tests.support.attempts import attempt

pytestmark = pytest.mark.anyio


@pytest.mark.fault("F22")
async def test_others_have_their_turn_while_it_is_read(tmp_path: Path) -> None:
    """A file is like a pipe that is never empty: reading it without a pause would read all of it."""
    endless = tmp_path / "endless"
    with endless.open("wb") as file:
        file.truncate(100_000_000)
    work = attempt(ShellTask(argv=("yes",)))
    reading = asyncio.create_task(_read(OutputPipe(os.open(endless, os.O_RDONLY)), "stdout", work))
    turns = 0
    while not work.output.is_full and not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 50, "a turn for each piece while it is kept"
    await asyncio.sleep(0)
    assert not reading.done(), "what nobody keeps is read in passing"
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert sum(len(chunk.data) for chunk in work.take_output() if chunk.stream == "stdout") == MAX_BYTES
