"""The worker's end of one runner process: starts it, sends calls, receives answers, kills its group."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Protocol

import msgspec
import structlog

from mainspring import runner_protocol as protocol
from mainspring import wire
from mainspring.runner_memory import RunnerMemory
from mainspring.worker.checkpoint import Checkpoint
from mainspring.worker.cleanup import CleanupRegistry
from mainspring.worker.environment import function_environment
from mainspring.worker.executors import Done, Work
from mainspring.worker.guardian import RUNNER_VARIABLE
from mainspring.worker.isolation.orphans import Orphans
from mainspring.worker.isolation.spawn import signal_group
from mainspring.worker.progress import Progress
from mainspring.worker.python.folders import RunnerFolder

log = structlog.get_logger()

READ_BYTES = 65_536
READS_PER_TURN = 2
"""More than a pipe holds, so everything written before an answer is read, and a flood lets other tasks run."""
SEND_BUFFER_BYTES = 1 << 20
"""So that a group of calls is sent in one write."""

_numbers = count(1)

CommandWrapper = Callable[[list[str], dict[str, str]], tuple[list[str], int]]
"""Wraps the command and environment of a runner: returns the new command and a descriptor that it inherits."""


class QueuedCall:
    """One call, waiting or sent to a runner."""

    __slots__ = ("args", "deaths", "finish", "function", "has_artifacts", "number", "since", "work")

    def __init__(
        self, work: Work, function: str, args: dict[str, object], finish: Callable[[Work, Done], None]
    ) -> None:
        self.work = work
        self.function = function
        self.args = args
        self.finish = finish
        self.has_artifacts = False
        self.number = -1
        self.since = 0.0  # when it began to wait, or was sent
        self.deaths = 0  # runners that died before they began it

    def to_message(self) -> protocol.Call:
        work = self.work
        assignment = work.assignment
        return protocol.Call(
            assignment.execution_id,
            assignment.attempt,
            assignment.fire_at,
            self.args or None,
            work.last_checkpoint,
            None if work.inputs is None else str(work.inputs),
        )


class RunnerListener(Protocol):
    """Receives the messages of runners, and their ends."""

    def loaded(self, runner: RunnerProcess, error: str | None) -> None: ...
    def answered(self, runner: RunnerProcess, answers: list[protocol.Returned]) -> None: ...
    def returned_calls(self, runner: RunnerProcess, calls: list[QueuedCall]) -> None: ...
    def became_concurrent(self, runner: RunnerProcess, function: str) -> None: ...
    def wrote_directly(self, runner: RunnerProcess, function: str) -> None: ...
    def ended(self, runner: RunnerProcess, calls: list[QueuedCall], begun: int, code: int) -> None: ...


class RunnerProcess:
    """One runner process. `calls` are in the order sent, up to the last one that was answered."""

    def __init__(
        self,
        listener: RunnerListener,
        cleanup: CleanupRegistry,
        folder: RunnerFolder,
        orphans: Orphans | None = None,
    ) -> None:
        self.calls: dict[int, QueuedCall] = {}
        self.ready = False
        self.concurrent = False
        self.retiring = False
        self.recalled = False
        self.loaded = False
        self.stopping = 0  # the number of the call that was last sent SIGTERM
        self.answered_at = 0.0  # when the last answer came, or the first call was sent
        self._listener = listener
        self._cleanup = cleanup
        self._folder = folder
        self._orphans = orphans
        self._mark = f"{os.getpid()}.{next(_numbers)}"
        self._loop = asyncio.get_running_loop()
        self._numbers = 0
        self._received = self._unsent = b""
        self._process: subprocess.Popen[bytes] | None = None
        self._pipes: dict[int, wire.Stream] = {}
        self._pipes_ready = select.poll()

    def start(self, targets: Sequence[str], environment: Mapping[str, str], wrap: CommandWrapper | None = None) -> None:
        memory, folder = RunnerMemory.create(), str(self._folder.path)
        self._sock, calls = socket.socketpair()
        self._control, control = socket.socketpair()
        try:
            with calls, control:
                calls.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
                descriptors = (calls.fileno(), control.fileno(), memory)
                self._process = process = _spawn(descriptors, folder, targets, environment, wrap, self._mark)
        finally:
            self._memory = RunnerMemory(memory)
            if self._process is None:
                self._close()
        self._cleanup.add_process_group(process.pid)
        if self._orphans is not None:
            self._orphans.begin(process.pid, [f"{RUNNER_VARIABLE}={self._mark}"], keeps_orphans=True)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        for sock in (self._sock, self._control):
            sock.setblocking(False)
        assert process.stdout is not None and process.stderr is not None
        self._pipes = {process.stdout.fileno(): "stdout", process.stderr.fileno(): "stderr"}
        for descriptor in self._pipes:
            os.set_blocking(descriptor, False)
            self._pipes_ready.register(descriptor, select.POLLIN)
            self._loop.add_reader(descriptor, self._read_pipes)
        self._loop.add_reader(self._sock, self._readable)

    @property
    def started(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def begun(self) -> int:
        """The number of the call that it has begun last. Every earlier one has ended or, if `concurrent`, begun."""
        return self._memory.begun

    @property
    def first(self) -> QueuedCall | None:
        return next(iter(self.calls.values()), None)

    @property
    def current(self) -> tuple[QueuedCall, float] | None:
        """The synchronous call that runs, or is about to begin, and since when."""
        if not self.calls:
            return None
        if (call := self.calls.get(self._memory.begun)) is not None:
            return call, self._memory.begun_at
        call = next(iter(self.calls.values()))
        return call, max(call.since, self.answered_at)

    def send(self, calls: Sequence[QueuedCall], now: float) -> None:
        """Send calls of one function, in one write."""
        groups: list[protocol.CallGroup] = []
        definition = session_id = None
        for number, call in enumerate(calls, self._numbers + 1):
            call.number, call.since = number, now
            self.calls[number] = call
            work = call.work
            if work.definition is not definition or work.session_id is not session_id:
                definition, session_id = work.definition, work.session_id
                once = definition.delivery == "effectively_once"
                groups.append(protocol.CallGroup(number, call.function, definition.name, session_id, once, []))
            groups[-1].calls.append(call.to_message())
        self._numbers += len(calls)
        self._write(protocol.encode(groups) + b"\n")

    def recall(self) -> None:
        """Ask the runner to return the calls that have not begun."""
        self.recalled = True
        self._write_control(protocol.Recall(self._numbers))

    def cancel(self, call: QueuedCall) -> None:
        """Cancel an asynchronous call."""
        self._write_control(protocol.Cancel(call.number))

    def terminate(self, call: QueuedCall) -> None:
        """End a synchronous call with SIGTERM. If it has just ended, the runner continues with the next one."""
        self._memory.stop = self.stopping = call.number
        self.kill(signal.SIGTERM)

    def kill(self, number: signal.Signals) -> None:
        """Signal the whole process group: processes that a function started end with it."""
        assert self._process is not None
        if self._process.returncode is None:  # else another process may have its id
            signal_group(self._process.pid, number)

    def _write(self, data: bytes) -> None:
        """Send now what the socket takes, and the rest when it can be written again."""
        if self._unsent:
            self._unsent += data
            return
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # it has ended: what it sent before is still read
        if sent < len(data):
            self._unsent = data[sent:]
            self._loop.add_writer(self._sock, self._writable)

    def _writable(self) -> None:
        self._loop.remove_writer(self._sock)
        data, self._unsent = self._unsent, b""
        self._write(data)

    def _write_control(self, message: protocol.ControlMessage) -> None:
        with contextlib.suppress(OSError):  # the few messages that can be on their way always fit
            self._control.send(protocol.encode(message) + b"\n")

    # Messages ------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        try:
            data = self._sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._ended()
            return
        complete = data.rfind(b"\n") + 1
        if not complete:
            self._received += data
            return
        lines, self._received = self._received + data[:complete], data[complete:]
        self._read_pipes()
        if not self._receive_lines(lines):
            self.kill(signal.SIGKILL)

    def _receive_lines(self, lines: bytes) -> bool:
        """Handle messages; return False if they are invalid."""
        try:
            messages = protocol.decode_runner_messages(lines)
        except msgspec.DecodeError as error:  # a function wrote into the socket
            log.error("runner.invalid_message", error=str(error))
            return False
        answers: list[protocol.Returned] = []
        for message in messages:
            if type(message) is protocol.Returned:
                answers.append(message)
            else:
                self._receive(message)
        if answers:
            self._listener.answered(self, answers)
        return True

    def _receive(self, message: protocol.RunnerMessage) -> None:
        match message:
            case protocol.OutputWritten(number, stream, text):
                if call := self.calls.get(number):
                    call.work.output.write(stream, text.encode("utf-8", "replace"))
            case protocol.ProgressMade(number, done, total, text):
                if call := self.calls.get(number):
                    call.work.progress = call.work.progress or Progress(mask=call.work.mask)
                    call.work.progress.report(done, total, text)
            case protocol.CheckpointSaved(number, value):
                if call := self.calls.get(number):
                    call.work.checkpoint = call.work.checkpoint or Checkpoint()
                    call.work.checkpoint.save(msgspec.Raw(value))
            case protocol.ArtifactFolder(number):
                if call := self.calls.get(number):
                    call.has_artifacts = True
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
        for descriptor, _ in self._pipes_ready.poll(0):
            for _ in range(READS_PER_TURN):
                try:
                    data = os.read(descriptor, READ_BYTES)
                except BlockingIOError:
                    break
                if not data:
                    self._pipes_ready.unregister(descriptor)
                    self._loop.remove_reader(descriptor)
                    break
                self._add_direct_output(self._pipes[descriptor], data)

    def _add_direct_output(self, stream: wire.Stream, data: bytes) -> None:
        call = self.first
        if not self.concurrent and (current := self.current) is not None:
            call = current[0]
        if call is not None and (len(self.calls) == 1 or not self.concurrent):
            call.work.output.write(stream, data)
            if not self.concurrent:
                self._listener.wrote_directly(self, call.function)
        else:
            log.info("runner.output", stream=stream, text=data.decode("utf-8", "replace").rstrip())

    # End -----------------------------------------------------------------------------------------------

    def _ended(self) -> None:
        """All its messages have been received; the process has exited or is exiting."""
        self.ready = False
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._reaping = self._loop.create_task(self._reap())

    async def _reap(self) -> None:
        assert self._process is not None
        process = self._process
        self.kill(signal.SIGKILL)  # processes that it started, too
        code = await self._loop.run_in_executor(None, process.wait)
        if self._orphans is not None:
            await self._orphans.end(process.pid)
        self._read_pipes()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            self._loop.remove_reader(pipe.fileno())
            pipe.close()
        self._cleanup.remove_process_group(process.pid)
        self._receive_lines(self._memory.held())  # results that it did not send, or that were received already
        calls, begun = list(self.calls.values()), self._memory.begun
        self.calls.clear()
        for call in calls:
            self.take_artifacts(call)
        self._close()
        self._listener.ended(self, calls, begun, code)

    def take_artifacts(self, call: QueuedCall) -> None:
        """Take what a call, which has ended, has put into its folder."""
        if call.has_artifacts:
            call.work.artifacts = self._folder.take(call.number)

    def _close(self) -> None:
        self._folder.close()
        self._sock.close()
        self._control.close()
        self._memory.close()


def _spawn(
    descriptors: tuple[int, ...],
    folder: str,
    targets: Sequence[str],
    environment: Mapping[str, str],
    wrap: CommandWrapper | None,
    mark: str,
) -> subprocess.Popen[bytes]:
    env = function_environment(environment) | {RUNNER_VARIABLE: mark}
    argv = [sys.executable, "-m", "mainspring.runner", ",".join(map(str, descriptors)), folder, *targets]
    settings = None
    if wrap is not None:
        argv, settings = wrap(argv, env)
        env, descriptors = {}, (*descriptors, settings)
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            pass_fds=descriptors,
            start_new_session=True,
        )
    finally:
        if settings is not None:
            os.close(settings)
