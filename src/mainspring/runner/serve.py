"""The runner server: receives calls from the worker and makes them.

Synchronous calls are made one at a time in the main thread, which also reads them: a call to an idle runner needs no
other thread. Asynchronous ones are made concurrently. Another thread reads what the worker sends meanwhile: requests to
cancel a call, or to return those that have not begun.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
from collections import deque
from contextvars import Context, copy_context
from time import monotonic
from typing import Any, NoReturn

from mainspring import runner_protocol as protocol
from mainspring.runner.answers import failure, returned_value, stored_value
from mainspring.runner.call import CallInProgress
from mainspring.runner.connection import WorkerConnection
from mainspring.runner.functions import Function, Functions, NotCallable
from mainspring.runner.leftovers import Leftovers
from mainspring.runner.modules import load
from mainspring.runner.streams import CallStream
from mainspring.runner.trace_context import continue_trace
from mainspring.runner_memory import RunnerMemory
from mainspring.runner_protocol import BadModule
from mainspring.sdk.context import current
from mainspring.sdk.transaction import AlreadyDone

READ_BYTES = 65_536  # a larger buffer is mapped and unmapped for each read
SESSION_VARIABLE = "MAINSPRING_SESSION_ID"
"""The guardian finds processes that a function started by this environment variable."""


class Cancelled(BaseException):
    """The call must end: it timed out or was cancelled. Its `finally` blocks still run."""


class RunnerServer:
    """Serves the calls of one runner process."""

    def __init__(self, sock: socket.socket, control: socket.socket, memory: RunnerMemory, folder: str) -> None:
        self._sock = sock
        self._control = control
        self._memory = memory
        self._folder = folder
        self._connection = WorkerConnection(sock, memory)
        self._buffer = b""
        self._lines: deque[bytes] = deque()
        self._beginning = threading.Lock()
        self._recalled = 0  # calls up to this number do not begin
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._to_cancel: set[int] = set()
        self._running = self._terminated = False
        self._stop = 0  # the last request to end a call that was seen
        self._session = ""
        self._functions = Functions([])
        self._leftovers: Leftovers | None = None

    def run(self, targets: list[str]) -> NoReturn:
        sys.stdout, sys.stderr = CallStream("stdout", sys.stdout), CallStream("stderr", sys.stderr)
        signal.signal(signal.SIGTERM, self._handle_sigterm)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._functions = Functions(load(targets))
        except BadModule as error:
            self._connection.send(protocol.Loaded(error.message))
            os._exit(1)
        gc.freeze()
        self._leftovers = Leftovers()
        self._connection.start()
        threading.Thread(target=self._read_control, name="mainspring-control", daemon=True).start()
        self._connection.send(protocol.Loaded())
        while True:
            while self._lines:
                self._serve(protocol.decode_call_groups(self._lines.popleft()))
            self._receive()

    def _receive(self) -> None:
        """Wait for lines. Only the thread that makes the calls reads them."""
        try:
            data = self._sock.recv(READ_BYTES)
        except OSError:
            data = b""
        if not data:
            os._exit(0)
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        self._lines.extend(lines)

    # In the thread for control messages ----------------------------------------------------------------

    def _read_control(self) -> None:
        with self._control.makefile("rb") as lines:
            for line in lines:
                message = protocol.decode_control_message(line)
                if isinstance(message, protocol.Recall):
                    self._recall(message.last)
                else:
                    self._to_cancel.add(message.number)
                    if self._loop is not None:
                        self._loop.call_soon_threadsafe(self._cancel, message.number)
        os._exit(0)

    def _recall(self, last: int) -> None:
        with self._beginning:
            first = max(self._memory.begun, self._recalled) + 1
            self._recalled = last
        self._connection.send(protocol.Unstarted(list(range(first, last + 1))))

    # In the main thread --------------------------------------------------------------------------------

    def _serve(self, groups: list[protocol.CallGroup]) -> None:
        last = groups[-1].first + len(groups[-1].calls) - 1
        for group in groups:
            if group.session_id != self._session:
                self._session = os.environ[SESSION_VARIABLE] = group.session_id
            for number, call in enumerate(group.calls, group.first):
                if not self._begin(number):
                    continue
                try:
                    function = self._functions.find(group.function)
                    if function.is_async:
                        self._connection.send(protocol.Concurrent(group.function))
                        asyncio.run(self._serve_concurrently(groups, number))
                    args = function.arguments(call.args or {})
                except NotCallable as error:
                    returned = protocol.Returned(number, error=str(error), retry=error.retry)
                else:
                    returned = Context.run(copy_context(), self._call, number, group, call, function, args)
                self._answer(returned, is_last=number == last)
        self._connection.flush()

    def _answer(self, returned: protocol.Returned, *, is_last: bool) -> None:
        if self._connection.in_child:
            os._exit(0)  # the function returned in its parent process, too
        self._end_leftovers()
        if self._terminated or self._memory.stop == returned.number:
            # Even if the function ignored it: no further call begins here.
            returned.exits = True
            self._connection.send(returned)
            os._exit(0)
        if is_last:
            self._connection.send(returned)
        else:
            self._connection.hold(returned)

    def _end_leftovers(self) -> None:
        if self._leftovers is not None:
            self._leftovers.end()

    def _begin(self, number: int) -> bool:
        """Note that a call begins; return False if it was recalled."""
        with self._beginning:
            if number <= self._recalled:
                return False
            self._memory.begin(number, monotonic())
            return True

    def _call(
        self, number: int, group: protocol.CallGroup, call: protocol.Call, function: Function, args: dict[str, Any]
    ) -> protocol.Returned:
        progress = CallInProgress(number, group.job, call, self._connection.send, self._folder)
        current.set(progress)
        continue_trace(progress.execution_id, progress.attempt)
        try:
            self._running = True
            try:
                if self._memory.stop == number:
                    raise Cancelled
                value = function.call(**args)
            finally:
                self._running = False  # from here on SIGTERM raises nothing in this thread
            return returned_value(number, value, once=group.once, committed=progress.committed)
        except Cancelled:
            return protocol.Returned(number, error="cancelled")
        except AlreadyDone as done:
            return stored_value(number, done)
        except BaseException as error:
            return failure(number, error)
        finally:
            progress.end()

    def _handle_sigterm(self, *_: Any) -> None:
        """End the call that the worker wants to end, unless it has just ended. The guardian ends any call."""
        asked, self._stop = self._stop, self._memory.stop
        if self._stop != asked:
            if self._running and self._stop == self._memory.begun:
                self._running = False
                raise Cancelled
        elif self._running:
            self._running, self._terminated = False, True
            raise Cancelled
        else:
            os._exit(0)

    # Asynchronous calls --------------------------------------------------------------------------------

    async def _serve_concurrently(self, groups: list[protocol.CallGroup], first: int) -> NoReturn:
        """Make calls concurrently from now on, beginning with number `first` of these groups."""
        self._loop = asyncio.get_running_loop()
        self._begin_groups(groups, first)
        self._begin_received()
        self._loop.add_reader(self._sock, self._receive_concurrently)
        while True:
            await asyncio.Event().wait()

    def _receive_concurrently(self) -> None:
        self._receive()
        self._begin_received()

    def _begin_received(self) -> None:
        while self._lines:
            self._begin_groups(protocol.decode_call_groups(self._lines.popleft()))

    def _begin_groups(self, groups: list[protocol.CallGroup], first: int = 0) -> None:
        for group in groups:
            for number, call in enumerate(group.calls, group.first):
                if number == first or (number > first and self._begin(number)):
                    self._begin_async(number, group, call)

    def _begin_async(self, number: int, group: protocol.CallGroup, call: protocol.Call) -> None:
        try:
            function = self._functions.find(group.function)
            args = function.arguments(call.args or {})
        except NotCallable as error:
            self._connection.send(protocol.Returned(number, error=str(error), retry=error.retry))
            return
        if not function.is_async:
            self._connection.send(protocol.Unstarted([number]))
        elif number in self._to_cancel:
            self._to_cancel.discard(number)
            self._connection.send(protocol.Returned(number, error="cancelled"))
        else:
            assert self._loop is not None
            made = self._call_async(number, group, call, function, args)
            self._tasks[number] = self._loop.create_task(made, context=copy_context())

    async def _call_async(
        self, number: int, group: protocol.CallGroup, call: protocol.Call, function: Function, args: dict[str, Any]
    ) -> None:
        progress = CallInProgress(number, group.job, call, self._connection.send, self._folder)
        current.set(progress)
        continue_trace(progress.execution_id, progress.attempt)
        try:
            value = await function.call(**args)
            returned = returned_value(number, value, once=group.once, committed=progress.committed)
        except asyncio.CancelledError:
            returned = protocol.Returned(number, error="cancelled")
        except AlreadyDone as done:
            returned = stored_value(number, done)
        except BaseException as error:
            returned = failure(number, error)
        progress.end()
        del self._tasks[number]
        if not self._tasks:  # with others in progress it is unknown whose they are
            self._end_leftovers()
        self._connection.send(returned)

    def _cancel(self, number: int) -> None:
        if (task := self._tasks.get(number)) is not None:
            task.cancel()
        if number <= self._memory.begun:
            self._to_cancel.discard(number)
