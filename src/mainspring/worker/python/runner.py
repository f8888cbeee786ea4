"""The worker's end of one runner process: starts it, sends calls, hears its words, kills its group."""

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

from mainspring import calls, wire
from mainspring.worker.checkpoint import Checkpoint
from mainspring.worker.executors import Children, Done, Work
from mainspring.worker.progress import Progress

log = structlog.get_logger()

READ_BYTES = 65_536
READS = 2
"""At a time: more than a pipe holds, so all that was written before is read, and a flood leaves others their turn."""
# A function's environment is its worker's, without the keys to the api and the database.
SECRETS = ("MAINSPRING_TOKEN", "MAINSPRING_DATABASE_URL")


Wrap = Callable[[list[str]], tuple[list[str], dict[str, str]]]
"""What is put around the command of a runner: the command that runs it, and its further environment."""


class Item:
    """One call: waiting, or with a runner."""

    __slots__ = ("args", "finish", "function", "number", "since", "work")

    def __init__(
        self, work: Work, function: str, args: dict[str, object], finish: Callable[[Work, Done], None]
    ) -> None:
        self.work = work
        self.function = function
        self.args = args
        self.finish = finish
        self.number = -1
        self.since = 0.0  # waiting since then, or first in line at its runner

    def as_call(self, number: int) -> calls.Call:
        given = self.work.assignment
        self.number = number
        return calls.Call(
            number,
            self.function,
            self.args,
            given.execution_id,
            self.work.definition.name,
            given.attempt,
            given.fire_at,
            self.work.session_id,
            self.work.definition.delivery == "effectively_once",
            self.work.last_checkpoint,
            None if self.work.inputs is None else str(self.work.inputs),
        )


class Listener(Protocol):
    """Who hears what a runner says, and of its end."""

    def loaded(self, runner: RunnerProcess, error: str | None) -> None: ...
    def answered(self, runner: RunnerProcess, answers: list[calls.Returned]) -> None: ...
    def gave_back(self, runner: RunnerProcess, items: list[Item]) -> None: ...
    def is_concurrent(self, runner: RunnerProcess, function: str) -> None: ...
    def wrote_raw(self, runner: RunnerProcess, function: str) -> None: ...
    def ended(self, runner: RunnerProcess, items: list[Item], code: int) -> None: ...


class RunnerProcess(asyncio.Protocol):
    """One process. `items` are its calls in their order; of those only the first has begun, unless `concurrent`."""

    def __init__(self, listener: Listener, children: Children) -> None:
        self.items: dict[int, Item] = {}
        self.ready = False
        self.concurrent = False
        self.retiring = False
        self.recalled = False
        self.loaded = False
        self.spent = False
        self.heard_at = 0.0  # when the last answer came, or the first call went out
        self._listener = listener
        self._children = children
        self._numbers = 0
        self._buffer = b""
        self._process: subprocess.Popen[bytes] | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._pipes: list[tuple[int, wire.Stream]] = []

    async def start(self, targets: Sequence[str], wrap: Wrap | None = None) -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        for one in (ours, theirs):  # a batch goes out in one write
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        with theirs:
            self._process = process = _spawn(theirs.fileno(), targets, wrap)
        self._children.born(process.pid)
        assert process.stdout is not None and process.stderr is not None
        for pipe, stream in ((process.stdout, "stdout"), (process.stderr, "stderr")):
            os.set_blocking(pipe.fileno(), False)
            self._pipes.append((pipe.fileno(), stream))  # type: ignore[arg-type]
            loop.add_reader(pipe.fileno(), self._read_raw)
        self._transport, _ = await loop.create_unix_connection(lambda: self, sock=ours)

    @property
    def started(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def head(self) -> Item | None:
        return next(iter(self.items.values()), None)

    def send(self, items: Sequence[Item]) -> None:
        orders = []
        for item in items:
            self._numbers += 1
            self.items[self._numbers] = item
            orders.append(item.as_call(self._numbers))
        self._write(orders)

    def recall(self) -> None:
        """Asks for what has not begun."""
        self.recalled = True
        self._write([calls.Recall()])

    def cancel(self, item: Item) -> None:
        self._write([calls.Cancel(item.number)])

    def _write(self, orders: Sequence[calls.Order]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(calls.encode(orders) + b"\n")

    def kill(self, number: signal.Signals) -> None:
        """The whole group: what a function started ends with it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    # What it says ----------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if b"\n" not in data:
            self._buffer += data
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        self._read_raw()
        answers: list[calls.Returned] = []
        for line in lines:
            try:
                word = calls.read_word(line)
            except msgspec.DecodeError as error:  # somebody wrote into our socket
                log.error("a runner said something strange", error=str(error))
                self.kill(signal.SIGKILL)
                return
            if isinstance(word, calls.Returned):
                answers.append(word)
            else:
                self._hear(word)
        if answers:
            self._listener.answered(self, answers)

    def _hear(self, word: calls.Word) -> None:
        match word:
            case calls.Wrote(number, stream, text):
                if item := self.items.get(number):
                    item.work.output.write(stream, text.encode("utf-8", "replace"))
            case calls.Told(number, done, total, message):
                if item := self.items.get(number):
                    item.work.progress = item.work.progress or Progress()
                    item.work.progress.report(done, total, message)
            case calls.Saved(number, value):
                if item := self.items.get(number):
                    item.work.checkpoint = item.work.checkpoint or Checkpoint()
                    item.work.checkpoint.save(msgspec.Raw(value))
            case calls.Files(number, folder):
                if item := self.items.get(number):
                    item.work.artifacts = Path(folder)
            case calls.Hello(error):
                self.ready = self.loaded = error is None
                self._listener.loaded(self, error)
            case calls.Concurrent(function):
                self.concurrent = True
                self._listener.is_concurrent(self, function)
            case calls.Unstarted(numbers):
                self.recalled = False
                self._listener.gave_back(self, [self.items.pop(n) for n in numbers if n in self.items])

    def _read_raw(self) -> None:
        """What was written past sys.stdout, by programs and libraries: it belongs to the call that runs."""
        for descriptor, stream in self._pipes:
            with contextlib.suppress(BlockingIOError):
                for _ in range(READS):
                    if not (data := os.read(descriptor, READ_BYTES)):
                        asyncio.get_running_loop().remove_reader(descriptor)  # closed
                        break
                    self._wrote_raw(stream, data)

    def _wrote_raw(self, stream: wire.Stream, data: bytes) -> None:
        head = self.head
        if head is not None and (len(self.items) == 1 or not self.concurrent):
            head.work.output.write(stream, data)
            if not self.concurrent:
                self._listener.wrote_raw(self, head.function)
        else:
            log.info("a runner wrote", stream=stream, text=data.decode("utf-8", "replace").rstrip())

    # Its end ---------------------------------------------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        """Everything it said has been heard; the process is gone, or is going."""
        self.ready = False
        asyncio.get_running_loop().create_task(self._reap())

    async def _reap(self) -> None:
        assert self._process is not None
        process = self._process
        self.kill(signal.SIGKILL)  # also what it started and left behind
        code = await asyncio.get_running_loop().run_in_executor(None, process.wait)
        self._read_raw()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            asyncio.get_running_loop().remove_reader(pipe.fileno())
            pipe.close()
        self._pipes.clear()
        self._children.gone(process.pid)
        items = list(self.items.values())
        self.items.clear()
        self._listener.ended(self, items, code)


def _spawn(descriptor: int, targets: Sequence[str], wrap: Wrap | None) -> subprocess.Popen[bytes]:
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
