"""The pytest plug-in for tests that hang: shows where one hangs, and lets the others run.

After a while it writes the stack of every asyncio task; the threads are in the report of faulthandler, which ends the
process later (`faulthandler_timeout` in pyproject.toml). pytest-xdist then starts another process, which would begin
with the same test: there the test fails at once.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path
from typing import TextIO

import pytest

REPORT_AFTER_S = 150.0
_stderr = pytest.StashKey[TextIO]()


def pytest_configure(config: pytest.Config) -> None:
    # A copy of the file that errors go to, made before pytest captures the output of tests.
    config.stash[_stderr] = os.fdopen(os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2), "w")


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_stderr].close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    timer = threading.Timer(REPORT_AFTER_S, report, (item.nodeid, item.config.stash[_stderr]))
    timer.daemon = True
    timer.start()
    try:
        result = yield
    finally:
        timer.cancel()
    # It was slow, and may run again.
    if item.nodeid in hung():
        _record().unlink(missing_ok=True)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.nodeid in hung():
        pytest.fail("this test did not end, and its process was stopped: see the stacks above", pytrace=False)


def report(name: str, target: TextIO) -> None:
    """Write the stacks of all tasks of this process, and record the name of the test."""
    print(f"\n{name} still runs. Its tasks:", file=target)
    # asyncio.all_tasks would ask for the loop of this thread, and there is none. Tasks of uvloop are in the same set.
    for task in list(asyncio.tasks._all_tasks):  # type: ignore[attr-defined]
        if not task.done():
            print(f"{task.get_name()}:", *awaited(task.get_coro()), sep="\n  ", file=target)
    target.flush()
    with _record().open("a") as record:
        record.write(f"{name}\n")


def awaited(coroutine: object) -> list[str]:
    """Return the lines that a coroutine, and what it awaits in turn, have reached."""
    lines = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}")
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return lines


def hung() -> list[str]:
    """Return the tests that hang in a process of this run."""
    try:
        return _record().read_text().splitlines()
    except FileNotFoundError:
        return []


def _record() -> Path:
    return Path(tempfile.gettempdir()) / f"hung-tests-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"
