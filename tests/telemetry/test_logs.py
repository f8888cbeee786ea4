"""Logged errors contain the traceback but no values, which may be secrets."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

CODE = """
import structlog
from mainspring.telemetry import logs
logs.configure("info")
def fails(token):
    raise ValueError("broken")
try:
    fails("ms_" + "hidden" * 2)
except ValueError:
    structlog.get_logger().exception("it happened")
"""


@pytest.mark.parametrize("terminal", [True, False])
def test_an_error_shows_no_values(terminal: bool) -> None:
    ours, theirs = pty.openpty() if terminal else os.pipe()
    subprocess.run([sys.executable, "-c", CODE], stderr=theirs, check=True)
    os.close(theirs)
    text = b""
    while True:
        try:
            data = os.read(ours, 65_536)
        except OSError:  # a terminal's way to say that the other end is closed
            break
        if not data:
            break
        text += data
    os.close(ours)
    assert b"it happened" in text and b"ValueError" in text and b"fails" in text
    assert b"hiddenhidden" not in text
