"""`mainspring exec`: run a command here, such as an old cron line, and report it as an execution of a job.

The command comes first. It starts at once, whether or not the server is reachable; its output passes through; the exit
code is its own. Reporting happens beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections import deque
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, BinaryIO

import click

from mainspring.cli.options import Options, server_options
from mainspring.cli.output import print_message

if TYPE_CHECKING:
    from mainspring import wire
    from mainspring.worker.transport.api_client import ApiClient

TAIL_BYTES = 64_000
"""How much of the end of each stream is reported."""
PIECE_BYTES = 8_192
REPORT_S = 10.0
"""How long to try to report the result once the command has ended."""
RETRY_S = 1.0
CANCEL_S = 10.0
"""Time for the command to end after a cancellation, before it is killed."""
MAX_ERROR_LINES = 5
QUEUE = "exec"
"""The queue that sessions of this command register for. No job is in it, so no work is claimed."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


@click.command("exec")
@click.argument("job")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- CMD...")
@click.option("--quiet", is_flag=True, help="Print nothing if the command cannot be reported.")
@server_options(hidden=True)
@click.pass_obj
def exec_(options: Options, job: str, command: tuple[str, ...], quiet: bool) -> None:
    """Run a command on this machine and report its start, the end of its output and its exit code to a job.

    The command runs even if the server is unreachable, and the exit code is that of the command. The token needs the
    scope `worker`; a worker token must grant the queue `exec` and the queue of JOB.

    \b
    In a crontab:
      0 2 * * *  mainspring exec backup -- /usr/local/bin/backup.sh
    Create the job, with a notification for runs that stay away:
      mainspring add backup --max-gap 26h --notify missed=ops -- /usr/local/bin/backup.sh
      mainspring workers token cron --queue exec --queue short
    """
    code = asyncio.run(_run(options, job, command, quiet=quiet))
    raise click.exceptions.Exit(code)


async def _run(options: Options, job: str, command: tuple[str, ...], *, quiet: bool) -> int:
    child = Child(command)
    await child.start()
    report = asyncio.create_task(_report(options, job, child))
    await child.ended.wait()
    try:
        await asyncio.wait_for(report, REPORT_S)
    except TimeoutError:
        _complain("the server did not accept the report in time", quiet=quiet)
    except Exception as error:
        _complain(str(error), quiet=quiet)
    return child.exit_code


def _complain(why: str, *, quiet: bool) -> None:
    if not quiet:
        print_message(f"mainspring exec: not reported: {why}")


@dataclass
class Child:
    """The command: its process, the end of its output, and how it ended."""

    command: tuple[str, ...]
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    exit_code: int = NOT_FOUND
    error: str | None = None
    cancelled: bool = False
    duration_ms: int = 0

    def __post_init__(self) -> None:
        self.stdout, self.stderr = Tail(), Tail()
        self._process: asyncio.subprocess.Process | None = None
        self._waiting: asyncio.Task[None] | None = None
        self._started = 0.0

    async def start(self) -> None:
        self._started = monotonic()
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(*self.command, stdout=pipe, stderr=pipe)
        except OSError as error:
            self.exit_code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
            self.error = f"cannot start {self.command[0]!r}: {error.strerror}"
            print_message(f"mainspring exec: {self.error}")
            self.ended.set()
            return
        for number in _FORWARDED:
            asyncio.get_running_loop().add_signal_handler(number, self.send_signal, number)
        self._waiting = asyncio.create_task(self._wait(self._process))

    def send_signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def cancel(self) -> None:
        """End the command: ask it, then kill it."""
        self.cancelled = True
        self.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.ended.wait(), CANCEL_S)
        except TimeoutError:
            self.send_signal(signal.SIGKILL)

    async def _wait(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        copies = asyncio.gather(
            _copy(process.stdout, sys.stdout.buffer, self.stdout), _copy(process.stderr, sys.stderr.buffer, self.stderr)
        )
        code = await process.wait()
        with contextlib.suppress(TimeoutError):  # a process that it left behind may keep the pipes open
            await asyncio.wait_for(copies, 1.0)
        self.exit_code = code if code >= 0 else 128 - code
        if code:
            what = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            self.error = "\n".join([what, *self.stderr.last_lines(MAX_ERROR_LINES)])
        self.duration_ms = round((monotonic() - self._started) * 1000)
        self.ended.set()


class Tail:
    """The last bytes of a stream."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._size = 0

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        while self._size - len(self._pieces[0]) >= TAIL_BYTES:
            self._size -= len(self._pieces.popleft())

    def content(self) -> bytes:
        return b"".join(self._pieces)[-TAIL_BYTES:]

    def last_lines(self, count: int) -> list[str]:
        return self.content().decode("utf-8", "replace").rstrip().splitlines()[-count:]


async def _copy(source: asyncio.StreamReader, target: BinaryIO, tail: Tail) -> None:
    """Pass output on as it comes, and keep the end of it."""
    writable = True
    while piece := await source.read(PIECE_BYTES):
        tail.add(piece)
        if writable:
            try:
                target.write(piece)
                target.flush()
            except OSError:  # the reader is gone; the command must not fail for that
                writable = False


async def _report(options: Options, job: str, child: Child) -> None:
    """Report start, heartbeats and result. Retries while the server is unreachable and the command runs."""
    from mainspring import __version__, wire
    from mainspring.client.discovery import discover
    from mainspring.domain.errors import Unauthenticated
    from mainspring.worker.transport.api_client import ApiAddress, ApiClient, ApiUnavailable

    server = discover(options.url, options.token)
    if server.token is None:
        raise Unauthenticated("there is no token: set MAINSPRING_TOKEN, or pass --token")
    api = ApiClient(ApiAddress(server.url, server.token))
    name = f"exec-{socket.gethostname()}-{os.getpid()}"[:128]
    register = wire.Register(
        name=name, host=socket.gethostname(), version=__version__, slots=1, queues=[QUEUE], kinds=["shell"],
        takes=["session_key"],
    )  # fmt: skip
    try:
        session, begun = await _begin(api, register, job, child)
        await _beat_until_end(api, session, begun, child)
        results = wire.Results(
            session_id=session.session_id,
            results=[_result(begun, child)],
            output=_output(begun, child),
            no_retry=[begun.execution_id],  # a retry would run the task of the job on a worker
        )
        await api.results(results)
        with contextlib.suppress(ApiUnavailable):
            await api.end_session(session.session_id)
    finally:
        await api.close()


async def _begin(api: ApiClient, register: wire.Register, job: str, child: Child) -> tuple[wire.Registered, wire.Begun]:
    """Report the start; while the server is unreachable, try again until the command has ended, and once after."""
    from mainspring.worker.transport.api_client import ApiUnavailable

    while True:
        is_last = child.ended.is_set()
        try:
            session = await api.register(register)
            return session, await api.begin(session.session_id, job)
        except ApiUnavailable:
            if is_last:
                raise
            await _ended_within(child, RETRY_S)


async def _beat_until_end(api: ApiClient, session: wire.Registered, begun: wire.Begun, child: Child) -> None:
    from mainspring import wire
    from mainspring.worker.transport.api_client import ApiUnavailable

    cancelling: asyncio.Task[None] | None = None
    while not await _ended_within(child, session.heartbeat_s):
        try:
            beat = await api.heartbeat(wire.Heartbeat(session_id=session.session_id, running=[begun.execution_id]))
        except ApiUnavailable:
            continue
        if begun.execution_id in beat.cancels and cancelling is None:
            cancelling = asyncio.create_task(child.cancel())
    if cancelling is not None:
        await cancelling


async def _ended_within(child: Child, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(child.ended.wait(), seconds)
    return child.ended.is_set()


def _result(begun: wire.Begun, child: Child) -> wire.Result:
    from mainspring import wire

    outcome = "succeeded" if child.exit_code == 0 else "cancelled" if child.cancelled else "failed"
    return wire.Result(
        execution_id=begun.execution_id,
        attempt=begun.attempt,
        outcome=outcome,  # type: ignore[arg-type]
        duration_ms=child.duration_ms,
        exit_code=child.exit_code,
        error=None if child.error is None else child.error[:4000],
    )


def _output(begun: wire.Begun, child: Child) -> list[wire.Output]:
    from mainspring import wire

    tails = [("stdout", child.stdout.content()), ("stderr", child.stderr.content())]
    return [
        wire.Output(
            execution_id=begun.execution_id,
            attempt=begun.attempt,
            seq=seq,
            stream=stream,  # type: ignore[arg-type]
            data=data,
        )
        for seq, (stream, data) in enumerate(tails)
        if data
    ]
