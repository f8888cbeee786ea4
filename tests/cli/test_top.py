"""`top` without a terminal and in a real one."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path

import pytest

from mainspring import wire
from mainspring.domain.queue import QueueSettings
from tests.support.invoke import Invoke
from tests.support.scripted_server import T0, Asked, Reply, Scripted, execution, running

PROGRAM = str(Path(sys.executable).with_name("mainspring"))


@pytest.fixture(autouse=True)
def _fleet(server: Scripted) -> None:
    queue = wire.Queue(
        name="short",
        settings=QueueSettings(),
        depth=7,
        exact=True,
        by_priority={},
        oldest_s=3.0,
        running=1,
        workers=1,
        slots=8,
    )
    server.on("GET", "/api/v1/queues", Reply(wire.Queues(items=[queue], limits=[])))
    server.on("GET", "/api/v1/workers", Reply(wire.Page(items=[])))

    def executions(asked: Asked) -> Reply:
        runs = asked.query.get("state") == ["running"]
        progress = wire.Progress(done=41, total=100, percent=41.0)
        return Reply(wire.Page(items=[running(job="etl", progress=progress)] if runs else [execution()]))

    server.on("GET", "/api/v1/executions", executions)


def test_without_a_terminal_it_prints_once(invoke: Invoke) -> None:
    text = invoke("top").stdout
    assert "7 waiting" in text
    assert re.search(r"^short +7 +3 s", text, re.MULTILINE)
    assert "no workers" in text
    assert re.search(r"etl .*41 %", text)
    assert f"{T0.astimezone():%H:%M:%S} ✔ hello" in text
    assert "\x1b" not in text


def test_it_has_no_other_format(invoke: Invoke) -> None:
    assert invoke("top", "-o", "json").exit_code == 2


def read_until(terminal: int, wanted: bytes, seconds: float = 30.0) -> bytes:
    seen, deadline = b"", time.monotonic() + seconds
    while wanted not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, seen
        seen += os.read(terminal, 65_536)
    return seen


def test_a_terminal_is_redrawn_within_its_size_and_restored(server: Scripted, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 60, 0, 0))
    env = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "TERM": "xterm", "MAINSPRING_URL": server.url,
        "MAINSPRING_TOKEN": "x", "LANG": "C.UTF-8", "PYTHONUTF8": "1",
    }  # fmt: skip
    process = subprocess.Popen(
        [PROGRAM, "top", "--interval", "200ms"], stdin=theirs, stdout=theirs, stderr=theirs, env=env
    )
    os.close(theirs)
    try:
        first = read_until(ours, b"mainspring top")
        again = read_until(ours, b"\x1b[H")  # drawn again
        process.send_signal(signal.SIGINT)
        rest = read_until(ours, b"\x1b[?1049l")
        process.wait(30)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert b"\x1b[?1049h" in first
    screen = (first + again + rest).decode().partition("\x1b[H")[2].partition("\x1b[J")[0]
    lines = [line.replace("\x1b[K", "").rstrip("\r") for line in screen.split("\n")]
    assert len(lines) <= 10
    assert max(map(len, lines)) <= 60
