"""The guardian alone: messages through its pipe, and the processes it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

import pytest

from tests.support.processes import alive, until

LEASE_S = 20


class Watched:
    """A guardian whose pipe the test writes to."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mainspring.worker.guardian"], stdin=subprocess.PIPE, text=True
        )

    def hears(self, *lines: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("".join(line + "\n" for line in lines))
        self.process.stdin.flush()

    def loses_its_worker(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def gone(self) -> bool:
        return self.process.poll() is not None


@pytest.fixture
def guardian() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    watched.process.kill()
    watched.process.wait()
    watched.loses_its_worker()


@contextmanager
def running(script: str) -> Iterator[subprocess.Popen[bytes]]:
    """A script in its own process group that has reported to be ready."""
    process = subprocess.Popen(["sh", "-c", script], start_new_session=True, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    yield process
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with running("echo ready; sleep 600 & wait") as process:
        yield process


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def test_after_a_goodbye_it_leaves_the_children_alone(guardian: Watched, child: subprocess.Popen[bytes]) -> None:
    guardian.hears(f"add_process_group {child.pid}", "goodbye")
    await until("the guardian's end", guardian.gone, within_s=10)
    assert child.poll() is None


async def test_a_closed_pipe_is_a_dead_worker(guardian: Watched, child: subprocess.Popen[bytes]) -> None:
    guardian.hears(f"add_process_group {child.pid}")
    guardian.loses_its_worker()
    await until("the child's end", lambda: child.poll() is not None, within_s=10)
    assert child.returncode == -9
    await until("the guardian's end", guardian.gone, within_s=10)


async def test_a_child_that_ended_is_nobodys_business(guardian: Watched, child: subprocess.Popen[bytes]) -> None:
    """The group number may be in use by another process."""
    guardian.hears(f"add_process_group {child.pid}", f"remove_process_group {child.pid}")
    guardian.loses_its_worker()
    await until("the guardian's end", guardian.gone, within_s=10)
    assert child.poll() is None


async def test_before_the_lease_ends_the_children_do(guardian: Watched, child: subprocess.Popen[bytes]) -> None:
    ends = boottime() + 3.5
    guardian.hears(f"add_process_group {child.pid}", f"lease {ends} {LEASE_S}")
    await until("the child's end", lambda: child.poll() is not None, within_s=10)
    assert child.returncode == -15, "asked first"
    assert boottime() < ends
    assert not guardian.gone(), "the worker may come back"


async def test_an_idle_worker_with_a_short_lease_may_start_a_child_just_before_it_renews(
    guardian: Watched, child: subprocess.Popen[bytes]
) -> None:
    """Half of the lease is left then."""
    ends = boottime() + 2.5
    guardian.hears(f"add_process_group {child.pid}", f"lease {ends} 5")
    await until("the child's end", lambda: child.poll() is not None, within_s=10)
    assert 0 < ends - boottime() < 5 / 3 + 0.1


async def test_who_does_not_listen_is_killed_before_the_lease_ends(guardian: Watched) -> None:
    with running("trap '' TERM; echo ready; while :; do sleep 0.05; done") as stubborn:
        ends = boottime() + 1.5
        guardian.hears(f"add_process_group {stubborn.pid}", f"lease {ends} {LEASE_S}")
        await until("its end", lambda: stubborn.poll() is not None, within_s=10)
        assert stubborn.returncode == -9
        assert boottime() < ends


async def test_a_renewed_lease_lets_them_live(guardian: Watched, child: subprocess.Popen[bytes]) -> None:
    """A renewal counts; the end of the second child proves that the guardian is still running."""
    guardian.hears(
        f"add_process_group {child.pid}",
        f"lease {boottime() + 3.2} {LEASE_S}",
        f"lease {boottime() + 60} 60",
        f"remove_process_group {child.pid}",
    )
    with running("echo ready; exec sleep 600") as other:
        guardian.hears(f"add_process_group {other.pid}", f"lease {boottime() + 3.2} {LEASE_S}")
        await until("the other's end", lambda: other.poll() is not None, within_s=10)
    assert alive(child.pid)


class BusyEngine(ThreadingUnixStreamServer):
    """A container engine that is just starting the container it has to remove."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.left = ["one"]
        self.answers = iter([500, 200, 409, 200])  # to the first requests; then it complies
        self.asked: list[str] = []
        super().__init__(str(path), BusyAnswer)


class BusyAnswer(BaseHTTPRequestHandler):
    server: BusyEngine

    def address_string(self) -> str:
        return "the guardian"

    def log_message(self, format: str, *args: object) -> None:
        self.server.asked.append(format % args)

    def do_GET(self) -> None:
        status = next(self.server.answers, 200)
        self._say(status, [{"Id": name} for name in self.server.left] if status == 200 else {"message": "busy"})

    def do_DELETE(self) -> None:
        status = next(self.server.answers, 204)
        if status == 204:
            self.server.left.clear()
        self._say(status, {})

    def _say(self, status: int, content: object) -> None:
        body = json.dumps(content).encode() if status != 204 else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[BusyEngine]:
    with BusyEngine(tmp_path / "engine.sock") as engine:
        answering = threading.Thread(target=engine.serve_forever, kwargs={"poll_interval": 0.05})
        answering.start()
        yield engine
        engine.shutdown()
        answering.join()


SESSION = json.dumps({"url": "http://127.0.0.1:9", "token": "none", "session_id": "one"})


@pytest.mark.parametrize("end", ["the worker dies", "the lease ends"])
async def test_a_busy_engine_is_asked_until_no_container_is_left(
    guardian: Watched, busy: BusyEngine, tmp_path: Path, end: str
) -> None:
    guardian.hears(f"session {SESSION}", f"add_engine {tmp_path / 'engine.sock'}")
    if end == "the worker dies":
        guardian.loses_its_worker()
        await until("the guardian's end", guardian.gone, within_s=30)
    else:
        guardian.hears(f"lease {boottime()} {LEASE_S}")
    await until("the removal", lambda: not busy.left, within_s=30)
