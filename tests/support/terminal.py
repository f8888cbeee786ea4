"""A terminal in which a user types `mainspring` commands and answers what they ask."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Mapping
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path

PROGRAM = str(Path(sys.executable).with_name("mainspring"))
ROWS, COLUMNS = 50, 160
PATIENCE_S = 120.0
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Shown:
    """What a command left on the screen, without colours, and its exit code."""

    code: int
    text: str


class Terminal:
    """Runs one command at a time in a pseudo-terminal."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._folder = folder
        self._env = {"PATH": os.environ["PATH"], "TERM": "xterm", "LANG": "C.UTF-8", "TZ": "UTC", **env}

    async def type(self, *words: str, answers: Mapping[str, str] | None = None) -> Shown:
        """Run a command to its end. `answers` are typed when their question appears, each once."""
        ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        process = await asyncio.create_subprocess_exec(
            *(PROGRAM, *words), cwd=self._folder, stdin=theirs, stdout=theirs, stderr=theirs, env=self._env
        )
        os.close(theirs)
        try:
            async with asyncio.timeout(PATIENCE_S):
                text = await asyncio.to_thread(_read, ours, dict(answers or {}))
                return Shown(await process.wait(), text)
        except BaseException:
            if process.returncode is None:
                process.kill()
                await process.wait()
            raise
        finally:
            os.close(ours)


def _read(terminal: int, answers: dict[str, str]) -> str:
    """Read until the program closes its terminal."""
    seen = b""
    while True:
        try:
            more = os.read(terminal, 65_536)
        except OSError:  # Linux reports the end of a terminal as an error
            more = b""
        seen += more
        text = _CONTROL.sub("", seen.decode(errors="replace")).replace("\r", "")
        if not more:
            assert not answers, f"not asked: {answers}\n{text}"
            return text
        for question in [question for question in answers if question in text]:
            os.write(terminal, answers.pop(question).encode() + b"\n")
