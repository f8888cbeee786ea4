"""Takes calls from the worker and makes them: one at a time in the main thread, asynchronous ones side by side.

A thread of its own reads the socket, so that calls which have not begun can be given back while one is hanging.
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

from mainspring import calls
from mainspring.runner.executing import CallInProgress
from mainspring.runner.functions import Function, Functions, NotCallable
from mainspring.runner.modules import BadModule, load
from mainspring.runner.streams import Stream
from mainspring.sdk.context import current
from mainspring.sdk.transaction import AlreadyDone

READ_BYTES = 1 << 20
MOST_RESULT = 262_144
MOST_ERROR = 9_000
MARK = "MAINSPRING_SESSION_ID"


class Cancelled(BaseException):
    """The call must end: its time is over, or somebody cancelled it. Its `finally` blocks still run."""


class Serving:
    """One runner process."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._writing = threading.Lock()
        self._calls: deque[calls.Call] = deque()
        self._arrived: SimpleQueue[None] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._running = self._cancelled = False
        self._session = ""
        self._functions = Functions([])

    def run(self, targets: list[str]) -> NoReturn:
        sys.stdout, sys.stderr = Stream("stdout", sys.stdout), Stream("stderr", sys.stderr)
        signal.signal(signal.SIGTERM, self._hear_term)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._functions = Functions(load(targets))
        except BadModule as error:
            self.send(calls.Hello(str(error)))
            os._exit(1)
        self.send(calls.Hello())
        threading.Thread(target=self._read, name="mainspring-orders", daemon=True).start()
        while True:
            self._serve_next()

    def send(self, word: calls.Word) -> None:
        line = calls.encode(word) + b"\n"
        try:
            with self._writing:
                self._sock.sendall(line)
        except OSError:
            os._exit(1)  # the worker is gone, and nobody waits for anything here

    # Orders: in the reading thread ------------------------------------------------------------------------

    def _read(self) -> None:
        buffer = b""
        while data := self._receive():
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                for order in calls.read_orders(line):
                    self._obey(order)
        os._exit(0)

    def _receive(self) -> bytes:
        try:
            return self._sock.recv(READ_BYTES)
        except OSError:
            return b""

    def _obey(self, order: calls.Order) -> None:
        if isinstance(order, calls.Call):
            self._calls.append(order)
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._begin_all)
            elif len(self._calls) == 1:
                self._arrived.put(None)
        elif isinstance(order, calls.Cancel):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._cancel, order.number)
        else:
            self.send(calls.Unstarted(self._take_back()))

    def _take_back(self) -> list[int]:
        found = []
        try:
            while True:
                found.append(self._calls.pop().number)
        except IndexError:
            return found[::-1]

    # Calls: in the main thread ----------------------------------------------------------------------------

    def _serve_next(self) -> None:
        try:
            call = self._calls.popleft()
        except IndexError:
            self._arrived.get()
            return
        if call.session_id != self._session:
            self._session = os.environ[MARK] = call.session_id  # by this the guardian finds what we start
        try:
            function = self._functions.find(call.function)
            args = function.arguments(call.args)
        except NotCallable as error:
            self.send(calls.Returned(call.number, error=str(error), retry=error.retry))
            return
        if function.is_async:
            self._calls.appendleft(call)
            self.send(calls.Concurrent(call.function))
            asyncio.run(self._serve_concurrently())
        self.send(Context.run(copy_context(), self._call, call, function, args))
        if self._cancelled:
            os._exit(0)  # whatever the function made of it: after this nothing begins here

    def _call(self, call: calls.Call, function: Function, args: dict[str, Any]) -> calls.Returned:
        progress = CallInProgress(call, self.send)
        current.set(progress)
        try:
            self._running = True
            try:
                value = function.call(**args)
            finally:
                self._running = False  # from here on SIGTERM raises nothing: what follows is ours
            return _returned(call, value, progress)
        except Cancelled:
            return calls.Returned(call.number, error="cancelled")
        except AlreadyDone as done:
            return _stored(call, done)
        except BaseException as error:
            return _raised(call, error)
        finally:
            progress.end()

    def _hear_term(self, *_: Any) -> None:
        if self._running:
            self._running, self._cancelled = False, True
            raise Cancelled
        os._exit(0)  # the call has just ended or not begun; either way the worker takes it as ended

    # Asynchronous calls -----------------------------------------------------------------------------------

    async def _serve_concurrently(self) -> NoReturn:
        self._loop = asyncio.get_running_loop()
        self._begin_all()
        while True:
            await asyncio.Event().wait()

    def _begin_all(self) -> None:
        others = []
        while self._calls:
            call = self._calls.popleft()
            try:
                function = self._functions.find(call.function)
                args = function.arguments(call.args)
            except NotCallable as error:
                self.send(calls.Returned(call.number, error=str(error), retry=error.retry))
                continue
            if not function.is_async:
                others.append(call.number)
                continue
            assert self._loop is not None
            task = self._loop.create_task(self._await(call, function, args), context=copy_context())
            self._tasks[call.number] = task
        if others:
            self.send(calls.Unstarted(others))

    async def _await(self, call: calls.Call, function: Function, args: dict[str, Any]) -> None:
        progress = CallInProgress(call, self.send)
        current.set(progress)
        try:
            returned = _returned(call, await function.call(**args), progress)
        except asyncio.CancelledError:
            returned = calls.Returned(call.number, error="cancelled")
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


def _stored(call: calls.Call, done: AlreadyDone) -> calls.Returned:
    """An earlier attempt did the work."""
    return calls.Returned(call.number, msgspec.Raw((done.stored or "null").encode()))


def _returned(call: calls.Call, value: Any, progress: CallInProgress) -> calls.Returned:
    if call.once and not progress.committed:
        return calls.Returned(
            call.number,
            retry=False,
            error="the job is effectively_once, but the function did not commit through ms.transaction:"
            " put its effects into `with ms.transaction(connection)`, or make the job at_least_once",
        )
    if value is None:
        return calls.Returned(call.number)
    try:
        result = calls.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return calls.Returned(
            call.number,
            retry=False,
            error=f"the result is not JSON: {error}; return numbers, text, lists, dictionaries or None",
        )
    if len(result) > MOST_RESULT:
        return calls.Returned(
            call.number,
            retry=False,
            error=f"the result has {len(result):,} bytes, and at most {MOST_RESULT:,} are kept;"
            " store it elsewhere and return where",
        )
    return calls.Returned(call.number, msgspec.Raw(result))


def _raised(call: calls.Call, error: BaseException) -> calls.Returned:
    """The error in one line, then how it came about, without our own frames."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in _OURS:
        trace = trace.tb_next
    head = "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, SystemExit):
        head = f"the function ended its process: {head}"
    tail = "".join(traceback.format_exception(type(error), error, trace))
    text = f"{head}\n\n{tail}"
    if len(text) > MOST_ERROR:
        text = f"{text[:2000]}\n…\n{text[-(MOST_ERROR - 2000) :]}"
    return calls.Returned(call.number, error=text.replace("\0", "\ufffd"))


_OURS = {__file__, sys.modules[Functions.__module__].__file__}
