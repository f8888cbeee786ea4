"""Every exit code of the program is provoked."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mainspring import wire
from mainspring.cli.failure import EXIT_CODES
from mainspring.domain.execution import State
from tests.support.invoke import Invoke
from tests.support.scripted_server import EXECUTION_ID, Asked, Reply, Scripted, execution, problem, running

PROGRAM = str(Path(sys.executable).with_name("mainspring"))
ONE = f"/api/v1/executions/{EXECUTION_ID}"
WAIT = ("executions", "wait", str(EXECUTION_ID))
JOB = ("GET", "/api/v1/jobs/x")
Case = tuple[int, Callable[[Scripted], None], tuple[str, ...]]


def answers(status: int, code: str) -> Callable[[Scripted], None]:
    return lambda server: server.on(*JOB, problem(status, code, "no"))


def ends(state: State) -> Callable[[Scripted], None]:
    return lambda server: server.on("GET", ONE, Reply(execution(state=state)))


def diagnosis(server: Scripted) -> None:
    finding = {"check": "clock", "offender": "x", "what": "late"}
    sick = {"healthy": False, "checks": {"clock": "late"}, "findings": [finding], "notes": [], "tzdata": "2026a"}
    server.on("GET", "/api/v1/doctor", Reply(sick))


def gone(server: Scripted) -> None:
    """Nothing to script: the command has another address."""


CASES: list[Case] = [
    (0, lambda server: server.on("GET", "/api/v1/jobs", Reply(wire.Page(items=[]))), ("jobs", "list")),
    (0, ends("succeeded"), WAIT),
    (1, diagnosis, ("doctor",)),
    (1, answers(500, "error"), ("jobs", "get", "x")),
    (2, gone, ("jobs", "get")),
    (2, gone, ("nothing",)),
    (2, gone, ("jobs", "list", "--nothing")),
    (3, answers(404, "not_found"), ("jobs", "get", "x")),
    (4, answers(401, "unauthenticated"), ("jobs", "get", "x")),
    (4, answers(403, "forbidden"), ("jobs", "get", "x")),
    (5, answers(409, "conflict"), ("jobs", "get", "x")),
    (5, answers(412, "precondition_failed"), ("jobs", "get", "x")),
    (6, answers(400, "bad_query"), ("jobs", "get", "x")),
    (6, answers(422, "invalid"), ("jobs", "get", "x")),
    (6, answers(413, "too_large"), ("jobs", "get", "x")),
    (6, gone, ("cron", "next", "61 * * * *")),
    (7, answers(503, "unavailable"), ("jobs", "get", "x")),
    (7, gone, ("--url", "http://127.0.0.1:1", "--token", "x", "jobs", "get", "x")),
    (8, lambda server: server.on("GET", ONE, Reply(running())), (*WAIT, "--timeout", "1ms")),
    (10, ends("failed"), WAIT),
    (10, ends("lost"), WAIT),
    (10, ends("skipped"), WAIT),
    (11, ends("cancelled"), WAIT),
    (12, ends("timed_out"), WAIT),
]


@pytest.mark.parametrize(("code", "prepare", "words"), CASES, ids=lambda value: "" if callable(value) else str(value))
def test_the_exit_code_says_what_happened(
    server: Scripted, invoke: Invoke, code: int, prepare: Callable[[Scripted], None], words: tuple[str, ...]
) -> None:
    prepare(server)
    result = invoke(*words)
    assert result.exit_code == code, result.output
    assert code in (0, 1, 10, 11, 12) or result.stderr


def test_an_interrupt_has_its_own_code(server: Scripted, tmp_path: Path) -> None:
    connected = threading.Event()

    def stream(_: Asked) -> Reply:
        def pieces() -> Any:
            connected.set()
            yield b": hi\n\n"
            threading.Event().wait(30)

        return Reply(content_type="text/event-stream", stream=pieces())

    server.on("GET", "/api/v1/stream", stream)
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "MAINSPRING_URL": server.url, "MAINSPRING_TOKEN": "x"}
    process = subprocess.Popen([PROGRAM, "events", "--follow"], env=env, cwd=tmp_path, stdout=subprocess.PIPE)
    assert connected.wait(30)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130


def test_no_code_is_left_out() -> None:
    provoked = {code for code, _, _ in CASES} | {130}
    # 20 belongs to `diff`, and is provoked there.
    assert provoked == EXIT_CODES.keys() - {20}
