"""A runner process, with this test as its worker: the order of calls, results and requests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainspring import runner_protocol as protocol
from mainspring.runner_memory import HELD_BYTES, RunnerMemory
from tests.support.processes import until

pytestmark = pytest.mark.anyio

APP = "tests.worker.app.jobs"


class Runner:
    """The worker's ends of one runner."""

    def __init__(self) -> None:
        descriptor = RunnerMemory.create()
        self.sock, calls = socket.socketpair()
        self.sock.settimeout(60)
        self.control, control = socket.socketpair()
        with calls, control:
            passed = (calls.fileno(), control.fileno(), descriptor)
            argv = [sys.executable, "-m", "mainspring.runner", ",".join(map(str, passed)), "/nowhere", APP]
            self.process = subprocess.Popen(argv, pass_fds=passed, start_new_session=True)
        self.memory = RunnerMemory(descriptor)
        self.lines = self.sock.makefile("rb")
        assert self.receive() == protocol.Loaded()

    def call(self, function: str, *args: dict[str, Any], first: int = 1) -> None:
        calls = [protocol.Call("id", 1, "2026-01-01T00:00:00Z", given) for given in args]
        group = protocol.CallGroup(first, f"{APP}:{function}", "job", "session", once=False, calls=calls)
        self.sock.sendall(protocol.encode([group]) + b"\n")

    def ask(self, message: protocol.ControlMessage) -> None:
        self.control.sendall(protocol.encode(message) + b"\n")

    def receive(self) -> protocol.RunnerMessage | None:
        line = self.lines.readline()
        return protocol.decode_runner_messages(line)[0] if line else None

    def receive_all(self) -> list[protocol.RunnerMessage]:
        found = []
        while (message := self.receive()) is not None:
            found.append(message)
        return found

    async def until_begun(self, number: int) -> None:
        await until(f"call {number}", lambda: self.memory.begun == number, within_s=30)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.lines.close()
        self.sock.close()
        self.control.close()
        self.memory.close()


@pytest.fixture
def runner() -> Iterator[Runner]:
    made = Runner()
    yield made
    made.close()


def returned(number: int, result: Any, **more: Any) -> protocol.Returned:
    return protocol.Returned(number, msgspec.Raw(msgspec.json.encode(result)), **more)


async def test_a_result_is_in_shared_memory_before_the_next_call_begins(runner: Runner, tmp_path: Path) -> None:
    file = tmp_path / "journal"
    runner.call("journal", *({"file": str(file), "name": f"n{n}", "die": n == 9} for n in range(1, 20)))
    assert runner.process.wait(30) == -signal.SIGKILL
    sent = runner.receive_all()
    held = protocol.decode_runner_messages(runner.memory.held())
    results = {message.number: message for message in [*sent, *held] if isinstance(message, protocol.Returned)}
    assert results == {n: returned(n, f"n{n}") for n in range(1, 9)}
    assert runner.memory.begun == 9
    assert file.read_text().splitlines()[-1] == "begins n9"


async def test_a_result_is_sent_while_the_next_call_runs(runner: Runner, tmp_path: Path) -> None:
    go = tmp_path / "go"
    runner.call("maybe_hang", {"file": str(go), "hang": False}, {"file": str(go), "hang": True})
    assert runner.receive() == returned(1, None)
    assert runner.memory.begun == 2
    go.touch()
    assert runner.receive() == returned(2, None)


async def test_results_that_fill_the_memory_are_sent_in_order(runner: Runner) -> None:
    size = HELD_BYTES // 3
    runner.call("repeat", *({"text": "x", "times": size} for _ in range(5)), {"text": "y", "times": 3 * size})
    expected = [returned(n, "x" * size) for n in range(1, 6)] + [returned(6, "y" * 3 * size)]
    assert [runner.receive() for _ in range(6)] == expected


async def test_a_request_to_end_a_call_ends_no_other(runner: Runner, tmp_path: Path) -> None:
    go = tmp_path / "go"
    runner.call(
        "maybe_hang",
        {"file": str(go), "hang": False},
        {"file": str(go), "hang": True},
        {"file": str(go), "hang": False},
    )
    await runner.until_begun(2)
    runner.memory.stop = 1  # it has ended
    os.kill(runner.process.pid, signal.SIGTERM)
    assert runner.receive() == returned(1, None)
    go.touch()
    assert [runner.receive() for _ in range(2)] == [returned(2, None), returned(3, None)]


@pytest.mark.parametrize("by", ["worker", "guardian"])
async def test_after_a_call_that_had_to_end_no_other_begins(runner: Runner, tmp_path: Path, by: str) -> None:
    file = tmp_path / "journal"
    never = str(tmp_path / "never")
    runner.call("journal", *({"file": str(file), "name": n, "wait_for": never if n == "b" else ""} for n in "abc"))
    assert runner.receive() == returned(1, "a")
    await until("the function", lambda: "begins b" in file.read_text(), within_s=30)
    if by == "worker":
        runner.memory.stop = 2
    os.kill(runner.process.pid, signal.SIGTERM)
    assert runner.receive() == returned(2, None, error="cancelled", exits=True)
    assert (runner.receive(), runner.process.wait(30), runner.memory.begun) == (None, 0, 2)


async def test_a_call_that_must_end_before_it_begins_is_not_made(runner: Runner, tmp_path: Path) -> None:
    file = tmp_path / "journal"
    runner.memory.stop = 1
    runner.call("journal", {"file": str(file), "name": "n"})
    assert runner.receive() == returned(1, None, error="cancelled", exits=True)
    assert not file.exists()


async def test_recalled_calls_do_not_begin_and_later_ones_do(runner: Runner, tmp_path: Path) -> None:
    go, file = tmp_path / "go", tmp_path / "journal"
    runner.call("journal", {"file": str(file), "name": "a", "wait_for": str(go)}, {"file": str(file), "name": "b"})
    await runner.until_begun(1)
    runner.call("journal", {"file": str(file), "name": "c"}, first=3)
    runner.ask(protocol.Recall(3))
    assert runner.receive() == protocol.Unstarted([2, 3])
    runner.call("journal", {"file": str(file), "name": "d"}, {"file": str(file), "name": "e"}, first=4)
    runner.ask(protocol.Recall(5))
    assert runner.receive() == protocol.Unstarted([4, 5])
    runner.call("journal", {"file": str(file), "name": "f"}, first=6)
    go.touch()
    assert [runner.receive() for _ in range(2)] == [returned(1, "a"), returned(6, "f")]
    assert file.read_text().split() == ["begins", "a", "ends", "a", "begins", "f", "ends", "f"]


async def test_a_coroutine_that_is_cancelled_before_it_arrives_does_not_begin(runner: Runner, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    runner.call("hang_softly", {"file": str(first)})
    assert runner.receive() == protocol.Concurrent(f"{APP}:hang_softly")
    await until("the coroutine", first.exists, within_s=30)
    runner.ask(protocol.Cancel(2))
    runner.ask(protocol.Recall(0))
    assert runner.receive() == protocol.Unstarted([]), "so the request before it has been read"
    runner.call("hang_softly", {"file": str(second)}, first=2)
    assert runner.receive() == returned(2, None, error="cancelled")
    assert not second.exists()


async def test_a_process_that_a_function_forked_makes_no_calls(runner: Runner, tmp_path: Path) -> None:
    file = tmp_path / "file"
    runner.call("forks", *({"file": str(file)} for _ in range(3)))
    assert [runner.receive() for _ in range(3)] == [returned(n, None) for n in (1, 2, 3)]
    assert sorted(file.read_text().split()) == ["child"] * 3 + ["parent"] * 3


async def test_it_ends_with_its_worker_while_a_call_hangs(runner: Runner, tmp_path: Path) -> None:
    runner.call("maybe_hang", {"file": str(tmp_path / "go"), "hang": True})
    await runner.until_begun(1)
    runner.control.shutdown(socket.SHUT_RDWR)
    assert runner.process.wait(30) == 0
