"""The pool of runner processes, and the calls that wait for them.

A runner makes one synchronous call at a time. For functions that take microseconds the messages would cost more than
the calls, so a runner is sent as many calls of one function as it makes in about ten milliseconds, as measured so far.
If one of them hangs, those behind it are recalled and sent to another runner; if the runner dies, those that it had not
begun are. Asynchronous functions share runners of their own.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import msgspec
import structlog

from mainspring import runner_protocol as protocol
from mainspring.clock import Clock, SystemClock
from mainspring.worker.executors import Done, Host
from mainspring.worker.isolation.spawn import signal_name
from mainspring.worker.python.folders import RunnerFolders
from mainspring.worker.python.runner_process import CommandWrapper, QueuedCall, RunnerProcess

log = structlog.get_logger()

TICK_S = 0.05
BATCH_S = 0.01
MAX_BATCH = 200
MAX_CONCURRENT = 100
"""Asynchronous calls in one runner."""
GRACE_S = 10.0
"""Between SIGTERM and SIGKILL."""
MAX_WAIT_S = 0.05
"""A call that waits longer gets a new runner, if another one is allowed."""
IDLE_S = 60.0
MAX_STARTING = 4
BROKEN_RETRY_S = 5.0
MAX_DEATHS = 3
"""A call whose runners die before they begin it is not sent to further ones."""
NULL = b"null"
_SUCCEEDED = Done("succeeded")


class RunnerPool:
    """Runs at most one runner per slot, and keeps a few while idle."""

    def __init__(
        self,
        host: Host,
        folders: RunnerFolders,
        *,
        parent: Path | None = None,
        clock: Clock | None = None,
        wrap: CommandWrapper | None = None,
    ) -> None:
        self._host = host
        self._folders = folders
        self._parent = parent  # of the runners' folders
        self._wrap = wrap
        self._clock = clock or SystemClock()
        self._kept = min(host.slots, max(2, os.cpu_count() or 1))
        self._waiting: deque[QueuedCall] = deque()
        self._runners: dict[RunnerProcess, float] = {}  # with the time each became idle
        self._terminating: dict[RunnerProcess, float] = {}  # with the time to send SIGKILL
        self._duration_s: dict[str, float] = {}  # by function, as measured
        self._concurrent: set[str] = set()  # asynchronous functions
        self._writes_directly: set[str] = set()  # functions that write past sys.stdout
        self._broken: str | None = None  # why no runner can start
        self._broken_at = 0.0
        self._assigning = self._ticking = self._stopping = False
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    # Start and stop ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Return when the first runner has loaded its modules. Folders that do not exist yet need no runner."""
        if all(map(_is_missing_folder, self._host.modules)):
            return
        for _ in range(self._kept):
            self._grow()
        while self._broken is None and not any(r.ready for r in self._runners) and self._runners:
            await self._change()

    async def stop(self) -> None:
        self._stopping = True
        while self._runners or self._tasks:
            for runner in self._runners:
                if runner.started:
                    runner.kill(signal.SIGKILL)
            await self._change()

    def replace_runners(self) -> None:
        """Replace each runner as soon as it is idle: the modules have changed."""
        self._broken = None
        self._duration_s.clear()
        self._concurrent.clear()
        for runner in list(self._runners):
            runner.retiring = True
            self._check_idle(runner)
        for _ in range(self._kept):
            self._grow()

    @property
    def processes(self) -> list[int]:
        """The process ids of the runners that can take calls."""
        return [runner.pid for runner in self._runners if runner.ready]

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # Calls ---------------------------------------------------------------------------------------------

    def submit(self, call: QueuedCall) -> None:
        call.since = self._clock.monotonic()
        self._waiting.append(call)
        call.work.on_stop(self._stop_requested)
        if not self._assigning:
            self._assigning = True  # once for all calls of the same poll answer
            asyncio.get_running_loop().call_soon(self._assign)
        self._schedule_tick()

    def _assign(self) -> None:
        self._assigning = False
        if self._broken is not None and not any(r.ready and not r.retiring for r in self._runners):
            self._fail_waiting(self._broken)
            return
        while self._waiting and (runner := self._free_runner(self._waiting[0].function)) is not None:
            batch, now = self._batch(runner), self._clock.monotonic()
            if not runner.calls:
                runner.answered_at = now
            for call in batch:
                call.work.started = now
            runner.send(batch, now)
        if self._waiting and self._may_grow():
            self._grow()

    def _fail_waiting(self, why: str) -> None:
        """Fail the waiting calls because no runner can start. After a while, try to start one again."""
        if self._waiting and self._clock.monotonic() - self._broken_at > BROKEN_RETRY_S:
            if not self._runners:
                self._grow()
            return
        while self._waiting:
            self._finish(self._waiting.popleft(), Done("failed", error=why))

    def _batch(self, runner: RunnerProcess) -> list[QueuedCall]:
        """Return the next calls to send together: all of one function."""
        function = self._waiting[0].function
        most = MAX_CONCURRENT - len(runner.calls) if function in self._concurrent else self._batch_size(function)
        batch: list[QueuedCall] = []
        while self._waiting and len(batch) < most and self._waiting[0].function == function:
            batch.append(self._waiting.popleft())
        return batch

    def _batch_size(self, function: str) -> int:
        duration_s = self._duration_s.get(function)
        if duration_s is None or function in self._writes_directly:
            return 1
        return max(1, min(MAX_BATCH, int(BATCH_S / max(duration_s, 1e-6))))

    def _free_runner(self, function: str) -> RunnerProcess | None:
        """Return the runner with the fewest calls, if it is idle or will be soon."""
        concurrent = function in self._concurrent
        most = MAX_CONCURRENT if concurrent else max(1, self._batch_size(function) // 2)
        free = (r for r in self._runners if len(r.calls) < most and self._takes(r, concurrent=concurrent))
        return min(free, key=lambda r: (r.concurrent != concurrent, len(r.calls)), default=None)

    def _takes(self, runner: RunnerProcess, *, concurrent: bool) -> bool:
        """Whether a runner may be sent a call. An idle one may become concurrent, and stays so."""
        if not runner.ready or runner.retiring or runner.recalled or runner in self._terminating:
            return False
        return runner.concurrent == concurrent or (concurrent and not runner.calls)

    def _finish(self, call: QueuedCall, done: Done) -> None:
        call.work.finish_output()
        call.finish(call.work, done)

    # Messages of runners -------------------------------------------------------------------------------

    def loaded(self, runner: RunnerProcess, error: str | None) -> None:
        if error is None:
            self._broken = None
            self._runners[runner] = self._clock.monotonic()
        else:
            self._break(error)
        self._changed.set()
        self._assign()

    def _break(self, error: str) -> None:
        log.error("runner.load_failed", error=error)
        self._broken, self._broken_at = error, self._clock.monotonic()

    def wrote_directly(self, runner: RunnerProcess, function: str) -> None:
        """Send its calls one at a time from now on: direct output can't be attributed to one of several."""
        self._writes_directly.add(function)

    def answered(self, runner: RunnerProcess, answers: list[protocol.Returned]) -> None:
        now, since = self._clock.monotonic(), runner.answered_at
        if not runner.concurrent and (first := runner.calls.get(answers[0].number)) is not None:
            each = (now - since) / len(answers)
            known = self._duration_s.get(first.function)
            # A slow call counts fully, a fast one partly: waiting behind a slow call is worse than one more message.
            self._duration_s[first.function] = each if known is None or each > known else 0.8 * known + 0.2 * each
        runner.answered_at = now
        for answer in answers:
            if (call := runner.calls.pop(answer.number, None)) is not None:
                if not runner.concurrent:
                    call.work.started = since  # it began after the answers before these
                runner.take_artifacts(call)
                self._finish(call, _done(call, answer))
            if answer.exits:
                runner.retiring = True
                runner.kill(signal.SIGKILL)  # processes that it started, too
            elif answer.number == runner.stopping:
                self._terminating.pop(runner, None)  # it had ended when the signal came
        self._check_idle(runner)
        if self._waiting:
            self._assign()

    def returned_calls(self, runner: RunnerProcess, calls: list[QueuedCall]) -> None:
        for call in reversed(calls):
            self._duration_s.pop(call.function, None)
            if call.number == runner.stopping:
                self._terminating.pop(runner, None)
            if call.work.stop_outcome is not None:
                self._finish(call, _stopped(call))
            else:
                self._waiting.appendleft(call)
        self._assign()

    def became_concurrent(self, runner: RunnerProcess, function: str) -> None:
        self._concurrent.add(function)
        self._assign()

    def ended(self, runner: RunnerProcess, calls: list[QueuedCall], begun: int, code: int) -> None:
        """A runner has died. Of the calls without an answer, those up to number `begun` had begun."""
        self._runners.pop(runner, None)
        was_terminating = self._terminating.pop(runner, None) is not None
        unstarted = []
        for call in calls:
            if call.work.stop_outcome is not None:
                self._finish(call, _stopped(call))
            elif call.number > begun and call.deaths < MAX_DEATHS:
                unstarted.append(call)
            elif runner.concurrent and was_terminating:
                self._finish(call, Done("preempted", error="its process was killed because of another call in it"))
            else:
                self._finish(call, Done("failed", exit_code=code, error=call.work.output.explain(_exit_reason(code))))
        if unstarted:
            unstarted[0].deaths += 1
            self._duration_s.pop(unstarted[0].function, None)  # send them one at a time again
        self._waiting.extendleft(reversed(unstarted))
        if not runner.loaded and not runner.retiring and self._broken is None and not self._stopping:
            self._break(f"a runner process exited while starting: {_exit_reason(code)}")
        self._changed.set()
        if not self._stopping:
            self._assign()

    # Ending calls --------------------------------------------------------------------------------------

    def _stop_requested(self, work: object) -> None:
        """End an attempt: at once if it has not begun, else with SIGTERM, and SIGKILL after the grace period."""
        for call in self._waiting:
            if call.work is work:
                self._waiting.remove(call)
                self._finish(call, _stopped(call))
                return
        for runner in self._runners:
            for call in runner.calls.values():
                if call.work is work:
                    self._end_call(runner, call)
                    return

    def _end_call(self, runner: RunnerProcess, call: QueuedCall) -> None:
        if runner.concurrent:
            runner.cancel(call)
            asyncio.get_running_loop().call_later(GRACE_S, self._kill_if_running, runner, call)
        elif call.number < runner.begun:
            return  # it has ended, and its result is on the way
        elif (current := runner.current) is not None and current[0] is call:
            if runner not in self._terminating:
                self._terminating[runner] = self._clock.monotonic() + GRACE_S
                runner.terminate(call)
        elif not runner.recalled:
            runner.recall()  # not begun: it ends once it is returned
        self._schedule_tick()

    def _kill_if_running(self, runner: RunnerProcess, call: QueuedCall) -> None:
        """Kill a concurrent runner, with all its calls, if one has not ended within the grace period."""
        if runner.calls.get(call.number) is call:
            self._terminating[runner] = self._clock.monotonic()
            runner.kill(signal.SIGKILL)

    # Timer ---------------------------------------------------------------------------------------------

    def _schedule_tick(self) -> None:
        if not self._ticking and not self._stopping:
            self._ticking = True
            asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        """Handle timeouts and waiting calls. Runs only while there are calls or surplus runners."""
        self._ticking = False
        now = self._clock.monotonic()
        for runner, kill_at in list(self._terminating.items()):
            if now >= kill_at and (runner.concurrent or runner.begun <= runner.stopping):
                runner.kill(signal.SIGKILL)
        for runner in list(self._runners):
            self._check_runner(runner, now)
        if self._waiting:
            if now - self._waiting[0].since > MAX_WAIT_S:
                self._add_runners(self._waiting[0].function)
            self._assign()
        if self._waiting or any(r.calls or not r.ready for r in self._runners) or len(self._runners) > self._kept:
            self._schedule_tick()

    def _add_runners(self, function: str) -> None:
        """Start runners for calls that wait too long; at the limit, replace an idle concurrent one."""
        if self._broken is not None:
            return
        if self._may_grow():
            starting = sum(not r.ready for r in self._runners)
            for _ in range(min(MAX_STARTING - starting, len(self._waiting))):
                self._grow()
        elif len(self._runners) >= self._host.slots and function not in self._concurrent:
            idle = next((r for r in self._runners if r.concurrent and not r.calls and not r.retiring), None)
            if idle is not None:
                idle.retiring = True
                idle.kill(signal.SIGKILL)

    def _check_runner(self, runner: RunnerProcess, now: float) -> None:
        if runner.concurrent:
            for call in list(runner.calls.values()):
                self._check_timeout(call, now - call.since)
        elif (current := runner.current) is not None:
            call, since = current
            self._check_timeout(call, now - since)
            if call.work.stop_outcome is not None:
                self._end_call(runner, call)  # it may have begun while it was recalled
            if now - since > MAX_WAIT_S and len(runner.calls) > 1 and not runner.recalled:
                runner.recall()
        surplus = len(self._runners) > self._kept
        if surplus and not runner.calls and runner.ready and now - self._runners[runner] > IDLE_S:
            runner.kill(signal.SIGKILL)

    def _check_timeout(self, call: QueuedCall, running_s: float) -> None:
        if running_s > call.work.definition.timeout_s and call.work.stop_outcome is None:
            call.work.request_stop("timed_out")

    def _check_idle(self, runner: RunnerProcess) -> None:
        if not runner.calls and runner in self._runners:
            self._runners[runner] = self._clock.monotonic()
            if runner.retiring:
                runner.kill(signal.SIGKILL)

    def _may_grow(self) -> bool:
        """Whether another runner is allowed and would help: not while enough runners make fast calls.

        Those wait for a processor, and more processes would only make them slower.
        """
        now = self._clock.monotonic()
        usable = [r for r in self._runners if not r.retiring]
        slow = sum(r.concurrent or ((c := r.current) is not None and now - c[1] > MAX_WAIT_S) for r in usable)
        return not self._stopping and len(usable) < self._host.slots and len(usable) - slow < self._kept

    def _grow(self) -> None:
        if len([r for r in self._runners if not r.retiring]) >= self._host.slots:
            return
        folder = self._folders.new_runner(self._parent)
        runner = RunnerProcess(self, self._host.cleanup, folder, self._host.orphans)
        self._runners[runner] = self._clock.monotonic()
        task = asyncio.get_running_loop().create_task(self._start(runner, self._host.modules))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self, runner: RunnerProcess, modules: Sequence[str]) -> None:
        try:
            runner.start(modules, self._host.environment, self._wrap)
        except OSError as error:
            log.error("runner.start_failed", error=str(error))
            self._runners.pop(runner, None)
            self._broken = f"cannot start a runner process: {error}"
            self._assign()
        self._changed.set()


def _is_missing_folder(module: str) -> bool:
    return "/" in module and not Path(module).exists()


def _done(call: QueuedCall, answer: protocol.Returned) -> Done:
    if call.work.stop_outcome is not None:
        return _stopped(call)
    if answer.error is not None:
        return Done("failed", error=answer.error, retry=answer.retry)
    # Passed on as JSON: the worker never decodes results.
    return _SUCCEEDED if answer.result == NULL else Done("succeeded", result=msgspec.Raw(answer.result))


def _stopped(call: QueuedCall) -> Done:
    assert call.work.stop_outcome is not None
    return call.work.stopped(call.work.stop_outcome)


def _exit_reason(code: int) -> str:
    if code >= 0:
        return f"the function's process ended with exit code {code}"
    return f"the function's process was ended by {signal_name(code)}"
