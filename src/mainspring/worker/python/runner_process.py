"""The worker's end of one runner process: starts it, sends calls, receives answers, kills its group."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from mainspring import runner_protocol as protocol
from mainspring import wire
from mainspring.worker.checkpoint import Checkpoint
from mainspring.worker.cleanup import CleanupRegistry
from mainspring.worker.executors import Done, Work
from mainspring.worker.isolation.spawn import signal_group
from mainspring.worker.progress import Progress

log = structlog.get_logger()

READ_BYTES = 65_536
READS_PER_TURN = 2
"""More than a pipe holds, so everything written before an answer is read, and a flood lets other tasks run."""
SECRETS = ("MAINSPRING_TOKEN", "MAINSPRING_DATABASE_URL")
"""Removed from the environment of functions, which is otherwise the worker's."""

CommandWrapper = Callable[[list[str]], tuple[list[str], dict[str, str]]]
"""Wraps the command of a runner: returns the new command and further environment variables."""


class QueuedCall:
    """One call, waiting or sent to a runner."""

    __slots__ = ("args", "finish", "function", "number", "since", "work")

    def __init__(
        self, work: Work, function: str, args: dict[str, object], finish: Callable[[Work, Done], None]
    ) -> None:
        self.work = work
        self.function = function
        self.args = args
        self.finish = finish
        self.number = -1
        self.since = 0.0  # when it began to wait, or to be the first call of its runner

    def to_message(self, number: int) -> protocol.Call:
        assignment = self.work.assignment
        self.number = number
        return protocol.Call(
            number,
            self.function,
            self.args,
            assignment.execution_id,
            self.work.definition.name,
            assignment.attempt,
            assignment.fire_at,
            self.work.session_id,
            self.work.definition.delivery == "effectively_once",
            self.work.last_checkpoint,
            None if self.work.inputs is None else str(self.work.inputs),
        )


class RunnerListener(Protocol):
    """Receives the messages of runners, and their ends."""

    def loaded(self, runner: RunnerProcess, error: str | None) -> None: ...
    def answered(self, runner: RunnerProcess, answers: list[protocol.Returned]) -> None: ...
    def returned_calls(self, runner: RunnerProcess, calls: list[QueuedCall]) -> None: ...
    def became_concurrent(self, runner: RunnerProcess, function: str) -> None: ...
    def wrote_directly(self, runner: RunnerProcess, function: str) -> None: ...
    def ended(self, runner: RunnerProcess, calls: list[QueuedCall], code: int) -> None: ...


class RunnerProcess(asyncio.Protocol):
    """One runner process. `calls` are in the order sent; only the first has begun, unless `concurrent`."""

    def __init__(self, listener: RunnerListener, cleanup: CleanupRegistry) -> None:
        self.calls: dict[int, QueuedCall] = {}
        self.ready = False
        self.concurrent = False
        self.retiring = False
        self.recalled = False
        self.loaded = False
        self.exiting = False  # it begins no further call
        self.answered_at = 0.0  # when the last answer came, or the first call was sent
        self._listener = listener
        self._cleanup = cleanup
        self._numbers = 0
        self._buffer = b""
        self._process: subprocess.Popen[bytes] | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._pipes: list[tuple[int, wire.Stream]] = []

    async def start(self, targets: Sequence[str], wrap: CommandWrapper | None = None) -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):  # so that a batch is sent in one write
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        with theirs:
            self._process = process = _spawn(theirs.fileno(), targets, wrap)
        self._cleanup.add_process_group(process.pid)
        assert process.stdout is not None and process.stderr is not None
        for pipe, stream in ((process.stdout, "stdout"), (process.stderr, "stderr")):
            os.set_blocking(pipe.fileno(), False)
            self._pipes.append((pipe.fileno(), stream))  # type: ignore[arg-type]
            loop.add_reader(pipe.fileno(), self._read_pipes)
        self._transport, _ = await loop.create_unix_connection(lambda: self, sock=ours)

    @property
    def started(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def first(self) -> QueuedCall | None:
        return next(iter(self.calls.values()), None)

    def send(self, calls: Sequence[QueuedCall]) -> None:
        messages = []
        for call in calls:
            self._numbers += 1
            self.calls[self._numbers] = call
            messages.append(call.to_message(self._numbers))
        self._write(messages)

    def recall(self) -> None:
        """Ask the runner to return the calls that have not begun."""
        self.recalled = True
        self._write([protocol.Recall()])

    def cancel(self, call: QueuedCall) -> None:
        self._write([protocol.Cancel(call.number)])

    def _write(self, messages: Sequence[protocol.WorkerMessage]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(protocol.encode(messages) + b"\n")

    def kill(self, number: signal.Signals) -> None:
        """Signal the whole process group: processes that a function started end with it."""
        signal_group(self.pid, number)

    # Messages ------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if b"\n" not in data:
            self._buffer += data
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        self._read_pipes()
        answers: list[protocol.Returned] = []
        for line in lines:
            try:
                message = protocol.decode_runner_message(line)
            except msgspec.DecodeError as error:  # a function wrote into the socket
                log.error("runner.invalid_message", error=str(error))
                self.kill(signal.SIGKILL)
                return
            if isinstance(message, protocol.Returned):
                answers.append(message)
            else:
                self._receive(message)
        if answers:
            self._listener.answered(self, answers)

    def _receive(self, message: protocol.RunnerMessage) -> None:
        match message:
            case protocol.OutputWritten(number, stream, text):
                if call := self.calls.get(number):
                    call.work.output.write(stream, text.encode("utf-8", "replace"))
            case protocol.ProgressMade(number, done, total, text):
                if call := self.calls.get(number):
                    call.work.progress = call.work.progress or Progress()
                    call.work.progress.report(done, total, text)
            case protocol.CheckpointSaved(number, value):
                if call := self.calls.get(number):
                    call.work.checkpoint = call.work.checkpoint or Checkpoint()
                    call.work.checkpoint.save(msgspec.Raw(value))
            case protocol.ArtifactFolder(number, folder):
                if call := self.calls.get(number):
                    call.work.artifacts = Path(folder)
            case protocol.Loaded(error):
                self.ready = self.loaded = error is None
                self._listener.loaded(self, error)
            case protocol.Concurrent(function):
                self.concurrent = True
                self._listener.became_concurrent(self, function)
            case protocol.Unstarted(numbers):
                self.recalled = False
                self._listener.returned_calls(self, [self.calls.pop(n) for n in numbers if n in self.calls])

    def _read_pipes(self) -> None:
        """Read what programs and libraries wrote directly to stdout and stderr: it belongs to the running call."""
        for descriptor, stream in self._pipes:
            with contextlib.suppress(BlockingIOError):
                for _ in range(READS_PER_TURN):
                    if not (data := os.read(descriptor, READ_BYTES)):
                        asyncio.get_running_loop().remove_reader(descriptor)  # closed
                        break
                    self._add_direct_output(stream, data)

    def _add_direct_output(self, stream: wire.Stream, data: bytes) -> None:
        first = self.first
        if first is not None and (len(self.calls) == 1 or not self.concurrent):
            first.work.output.write(stream, data)
            if not self.concurrent:
                self._listener.wrote_directly(self, first.function)
        else:
            log.info("runner.output", stream=stream, text=data.decode("utf-8", "replace").rstrip())

    # End -----------------------------------------------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        """All its messages have been received; the process has exited or is exiting."""
        self.ready = False
        asyncio.get_running_loop().create_task(self._reap())

    async def _reap(self) -> None:
        assert self._process is not None
        process = self._process
        self.kill(signal.SIGKILL)  # processes that it started, too
        code = await asyncio.get_running_loop().run_in_executor(None, process.wait)
        self._read_pipes()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            asyncio.get_running_loop().remove_reader(pipe.fileno())
            pipe.close()
        self._pipes.clear()
        self._cleanup.remove_process_group(process.pid)
        calls = list(self.calls.values())
        self.calls.clear()
        self._listener.ended(self, calls, code)


def _spawn(descriptor: int, targets: Sequence[str], wrap: CommandWrapper | None) -> subprocess.Popen[bytes]:
    env = {name: value for name, value in os.environ.items() if name not in SECRETS}
    argv = [sys.executable, "-m", "mainspring.runner", str(descriptor), *targets]
    if wrap is not None:
        argv, more = wrap(argv)
        env |= more
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        pass_fds=(descriptor,),
        start_new_session=True,
    )
