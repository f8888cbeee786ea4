"""The runner server: receives calls from the worker and makes them.

Synchronous calls are made one at a time in the main thread, asynchronous ones concurrently. Another thread reads the
socket, so that calls which have not begun can be returned while one hangs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import traceback
from collections import deque
from contextvars import Context, copy_context
from queue import SimpleQueue
from typing import Any, NoReturn

import msgspec

from mainspring import runner_protocol as protocol
from mainspring.runner.call import CallInProgress
from mainspring.runner.functions import Function, Functions, NotCallable
from mainspring.runner.modules import load
from mainspring.runner.streams import CallStream
from mainspring.runner_protocol import BadModule
from mainspring.sdk.context import current
from mainspring.sdk.transaction import AlreadyDone

READ_BYTES = 1 << 20
MAX_RESULT_BYTES = 262_144
MAX_ERROR_CHARS = 9_000
SESSION_VARIABLE = "MAINSPRING_SESSION_ID"
"""The guardian finds processes that a function started by this environment variable."""


class Cancelled(BaseException):
    """The call must end: it timed out or was cancelled. Its `finally` blocks still run."""


class RunnerServer:
    """Serves the calls of one runner process."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._writing = threading.Lock()
        self._calls: deque[protocol.Call] = deque()
        self._arrived: SimpleQueue[None] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._running = self._cancelled = False
        self._session = ""
        self._functions = Functions([])

    def run(self, targets: list[str]) -> NoReturn:
        sys.stdout, sys.stderr = CallStream("stdout", sys.stdout), CallStream("stderr", sys.stderr)
        signal.signal(signal.SIGTERM, self._handle_sigterm)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._functions = Functions(load(targets))
        except BadModule as error:
            self.send(protocol.Loaded(error.message))
            os._exit(1)
        self.send(protocol.Loaded())
        threading.Thread(target=self._read, name="mainspring-receive", daemon=True).start()
        while True:
            self._serve_next()

    def send(self, message: protocol.RunnerMessage) -> None:
        line = protocol.encode(message) + b"\n"
        try:
            with self._writing:
                self._sock.sendall(line)
        except OSError:
            os._exit(1)  # the worker is gone

    # In the receiving thread ---------------------------------------------------------------------------

    def _read(self) -> None:
        buffer = b""
        while data := self._read_socket():
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                for message in protocol.decode_worker_messages(line):
                    self._receive(message)
        os._exit(0)

    def _read_socket(self) -> bytes:
        try:
            return self._sock.recv(READ_BYTES)
        except OSError:
            return b""

    def _receive(self, message: protocol.WorkerMessage) -> None:
        if isinstance(message, protocol.Call):
            self._calls.append(message)
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._begin_all)
            elif len(self._calls) == 1:
                self._arrived.put(None)
        elif isinstance(message, protocol.Cancel):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._cancel, message.number)
        else:
            self.send(protocol.Unstarted(self._take_unstarted()))

    def _take_unstarted(self) -> list[int]:
        found = []
        try:
            while True:
                found.append(self._calls.pop().number)
        except IndexError:
            return found[::-1]

    # In the main thread --------------------------------------------------------------------------------

    def _serve_next(self) -> None:
        try:
            call = self._calls.popleft()
        except IndexError:
            self._arrived.get()
            return
        if call.session_id != self._session:
            self._session = os.environ[SESSION_VARIABLE] = call.session_id
        if (found := self._find(call)) is None:
            return
        function, args = found
        if function.is_async:
            self._calls.appendleft(call)
            self.send(protocol.Concurrent(call.function))
            asyncio.run(self._serve_concurrently())
        self.send(Context.run(copy_context(), self._call, call, function, args))
        if self._cancelled:
            os._exit(0)  # even if the function ignored it: no further call begins here

    def _find(self, call: protocol.Call) -> tuple[Function, dict[str, Any]] | None:
        """Return the function of a call and its arguments; if it can't be made, answer it and return None."""
        try:
            function = self._functions.find(call.function)
            return function, function.arguments(call.args)
        except NotCallable as error:
            self.send(protocol.Returned(call.number, error=str(error), retry=error.retry))
            return None

    def _call(self, call: protocol.Call, function: Function, args: dict[str, Any]) -> protocol.Returned:
        progress = CallInProgress(call, self.send)
        current.set(progress)
        try:
            self._running = True
            try:
                value = function.call(**args)
            finally:
                self._running = False  # from here on SIGTERM raises nothing in this thread
            return _returned(call, value, progress)
        except Cancelled:
            return protocol.Returned(call.number, error="cancelled")
        except AlreadyDone as done:
            return _stored(call, done)
        except BaseException as error:
            return _raised(call, error)
        finally:
            progress.end()

    def _handle_sigterm(self, *_: Any) -> None:
        if self._running:
            self._running, self._cancelled = False, True
            raise Cancelled
        os._exit(0)  # the call has just ended or not begun; the worker treats it as ended in both cases

    # Asynchronous calls --------------------------------------------------------------------------------

    async def _serve_concurrently(self) -> NoReturn:
        self._loop = asyncio.get_running_loop()
        self._begin_all()
        while True:
            await asyncio.Event().wait()

    def _begin_all(self) -> None:
        synchronous = []
        while self._calls:
            call = self._calls.popleft()
            if (found := self._find(call)) is None:
                continue
            function, args = found
            if not function.is_async:
                synchronous.append(call.number)
                continue
            assert self._loop is not None
            task = self._loop.create_task(self._call_async(call, function, args), context=copy_context())
            self._tasks[call.number] = task
        if synchronous:
            self.send(protocol.Unstarted(synchronous))

    async def _call_async(self, call: protocol.Call, function: Function, args: dict[str, Any]) -> None:
        progress = CallInProgress(call, self.send)
        current.set(progress)
        try:
            returned = _returned(call, await function.call(**args), progress)
        except asyncio.CancelledError:
            returned = protocol.Returned(call.number, error="cancelled")
        except AlreadyDone as done:
            returned = _stored(call, done)
        except BaseException as error:
            returned = _raised(call, error)
        progress.end()
        del self._tasks[call.number]
        self.send(returned)

    def _cancel(self, number: int) -> None:
        if (task := self._tasks.get(number)) is not None:
            task.cancel()


def _stored(call: protocol.Call, done: AlreadyDone) -> protocol.Returned:
    """Return the result that an earlier attempt stored."""
    return protocol.Returned(call.number, msgspec.Raw((done.stored or "null").encode()))


def _returned(call: protocol.Call, value: Any, progress: CallInProgress) -> protocol.Returned:
    if call.once and not progress.committed:
        return protocol.Returned(
            call.number,
            retry=False,
            error="the job is effectively_once, but the function did not commit through ms.transaction:"
            " put its effects into `with ms.transaction(connection)`, or make the job at_least_once",
        )
    if value is None:
        return protocol.Returned(call.number)
    try:
        result = protocol.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return protocol.Returned(
            call.number,
            retry=False,
            error=f"the result is not JSON: {error}; return numbers, text, lists, dictionaries or None",
        )
    if len(result) > MAX_RESULT_BYTES:
        return protocol.Returned(
            call.number,
            retry=False,
            error=f"the result has {len(result):,} bytes; the limit is {MAX_RESULT_BYTES:,}:"
            " store it elsewhere and return its location",
        )
    return protocol.Returned(call.number, msgspec.Raw(result))


def _raised(call: protocol.Call, error: BaseException) -> protocol.Returned:
    """Return the error in one line, then the traceback without the runner's frames."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in _RUNNER_FILES:
        trace = trace.tb_next
    head = "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, SystemExit):
        head = f"the function ended its process: {head}"
    tail = "".join(traceback.format_exception(type(error), error, trace))
    text = f"{head}\n\n{tail}"
    if len(text) > MAX_ERROR_CHARS:
        text = f"{text[:2000]}\n…\n{text[-(MAX_ERROR_CHARS - 2000) :]}"
    return protocol.Returned(call.number, error=text.replace("\0", "\ufffd"))


_RUNNER_FILES = {__file__, sys.modules[Functions.__module__].__file__}
