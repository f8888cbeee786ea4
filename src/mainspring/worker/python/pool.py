"""Runner processes and the calls for them.

A runner makes one synchronous call at a time. Functions that take microseconds would spend their time on the way,
so a runner gets as many of one at once as it makes in about ten milliseconds, by what was measured; should one of
them hang, those behind it are called back and go elsewhere. Asynchronous functions share runners of their own.
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

from mainspring import calls
from mainspring.clock import Clock, SystemClock
from mainspring.worker.executors import Done, Host
from mainspring.worker.python.runner import Item, RunnerProcess, Wrap

log = structlog.get_logger()

TICK_S = 0.05
BATCH_S = 0.01
MOST_BATCH = 200
CONCURRENT = 100
"""Asynchronous calls in one runner."""
GRACE_S = 10.0
PATIENCE_S = 0.05
"""A call that waits longer gets a new runner, if there may be one more."""
IDLE_S = 60.0
STARTING = 4
BROKEN_S = 5.0
NOTHING = b"null"


class Pool:
    """At most as many runners as there are slots; a few are kept when there is nothing to do."""

    def __init__(self, host: Host, *, clock: Clock | None = None, wrap: Wrap | None = None) -> None:
        self._host = host
        self._wrap = wrap
        self._clock = clock or SystemClock()
        self._kept = min(host.slots, max(2, os.cpu_count() or 1))
        self._waiting: deque[Item] = deque()
        self._runners: dict[RunnerProcess, float] = {}  # with the time each became idle
        self._dying: dict[RunnerProcess, float] = {}  # with the time to kill each for good
        self._took_s: dict[str, float] = {}
        self._concurrent: set[str] = set()
        self._chatty: set[str] = set()
        self._broken: str | None = None
        self._broken_at = 0.0
        self._dealing = self._ticking = self._stopping = False
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    # The life of the pool --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when the first runner has loaded its modules; a folder that is not there yet needs none."""
        if all(map(_not_yet, self._host.modules)):
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

    def renew(self) -> None:
        """The modules have changed: runners are replaced as soon as they have nothing to do."""
        self._broken = None
        self._took_s.clear()
        self._concurrent.clear()
        for runner in list(self._runners):
            runner.retiring = True
            self._settle_down(runner)
        for _ in range(self._kept):
            self._grow()

    @property
    def processes(self) -> list[int]:
        """Of the runners that can take calls."""
        return [runner.pid for runner in self._runners if runner.ready]

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # Calls -----------------------------------------------------------------------------------------------

    def submit(self, item: Item) -> None:
        item.since = self._clock.monotonic()
        self._waiting.append(item)
        item.work.on_end(self._must_end)
        if not self._dealing:
            self._dealing = True  # once for all that came with the same poll
            asyncio.get_running_loop().call_soon(self._deal)
        self._tick_on()

    def _deal(self) -> None:
        self._dealing = False
        if self._broken is not None and not any(r.ready and not r.retiring for r in self._runners):
            self._deal_broken(self._broken)
            return
        while self._waiting and (runner := self._free_runner(self._waiting[0].function)) is not None:
            batch = self._batch(runner)
            if not runner.items:
                self._first_in_line(runner, batch[0])
            elif runner.concurrent:
                for item in batch:
                    item.since = item.work.started = self._clock.monotonic()
            runner.send(batch)
        if self._waiting and self._may_start():
            self._grow()

    def _deal_broken(self, why: str) -> None:
        """Nothing can be called; after a while it is tried again, in case somebody has mended it."""
        if self._waiting and self._clock.monotonic() - self._broken_at > BROKEN_S:
            if not self._runners:
                self._grow()
            return
        while self._waiting:
            self._finish(self._waiting.popleft(), Done("failed", error=why))

    def _batch(self, runner: RunnerProcess) -> list[Item]:
        """The calls that go out together: all of one function."""
        function = self._waiting[0].function
        most = CONCURRENT - len(runner.items) if function in self._concurrent else self._at_once(function)
        batch: list[Item] = []
        while self._waiting and len(batch) < most and self._waiting[0].function == function:
            batch.append(self._waiting.popleft())
        return batch

    def _at_once(self, function: str) -> int:
        took = self._took_s.get(function)
        return (
            1 if took is None or function in self._chatty else max(1, min(MOST_BATCH, int(BATCH_S / max(took, 1e-6))))
        )

    def _free_runner(self, function: str) -> RunnerProcess | None:
        """One that is idle, or will be before long; the one with the least to do."""
        concurrent = function in self._concurrent
        most = CONCURRENT if concurrent else max(1, self._at_once(function) // 2)
        free = (r for r in self._runners if len(r.items) < most and self._takes(r, concurrent=concurrent))
        return min(free, key=lambda r: (r.concurrent != concurrent, len(r.items)), default=None)

    def _takes(self, runner: RunnerProcess, *, concurrent: bool) -> bool:
        """Whether it may be given a call; an idle one becomes concurrent if need be, and never back."""
        if not runner.ready or runner.retiring or runner.recalled or runner in self._dying:
            return False
        return runner.concurrent == concurrent or (concurrent and not runner.items)

    def _first_in_line(self, runner: RunnerProcess, item: Item) -> None:
        item.since = item.work.started = runner.heard_at = self._clock.monotonic()

    def _finish(self, item: Item, done: Done) -> None:
        item.work.finish_output()
        item.finish(item.work, done)

    # What runners say ------------------------------------------------------------------------------------

    def loaded(self, runner: RunnerProcess, error: str | None) -> None:
        if error is None:
            self._broken = None
            self._runners[runner] = self._clock.monotonic()
        else:
            self._break(error)
        self._changed.set()
        self._deal()

    def _break(self, error: str) -> None:
        log.error("no functions can be called", error=error)
        self._broken, self._broken_at = error, self._clock.monotonic()

    def wrote_raw(self, runner: RunnerProcess, function: str) -> None:
        """Only one at a time from now on: what is written past us can't be told apart by call."""
        self._chatty.add(function)

    def answered(self, runner: RunnerProcess, answers: list[calls.Returned]) -> None:
        now = self._clock.monotonic()
        if not runner.concurrent and (first := runner.items.get(answers[0].number)) is not None:
            each = (now - runner.heard_at) / len(answers)
            known = self._took_s.get(first.function)
            # A slow one counts at once, a quick one bit by bit: hanging behind others is worse than one more message.
            self._took_s[first.function] = each if known is None or each > known else 0.8 * known + 0.2 * each
        runner.heard_at = now
        for answer in answers:
            if (item := runner.items.pop(answer.number, None)) is not None:
                self._finish(item, _done(item, answer))
        if not runner.concurrent and (head := runner.head) is not None:
            head.since = head.work.started = now
        if runner in self._dying and not runner.concurrent:
            runner.spent = True  # it begins nothing after a call that was told to end
            runner.kill(signal.SIGKILL)
        self._settle_down(runner)
        if self._waiting:
            self._deal()

    def gave_back(self, runner: RunnerProcess, items: list[Item]) -> None:
        for item in reversed(items):
            self._took_s.pop(item.function, None)
            if item.work.stop_outcome is not None:
                self._finish(item, _ended(item))
            else:
                self._waiting.appendleft(item)
        self._deal()

    def is_concurrent(self, runner: RunnerProcess, function: str) -> None:
        self._concurrent.add(function)
        self._deal()

    def ended(self, runner: RunnerProcess, items: list[Item], code: int) -> None:
        self._runners.pop(runner, None)
        was_dying = self._dying.pop(runner, None) is not None
        unstarted = []
        for place, item in enumerate(items):
            if item.work.stop_outcome is not None:
                self._finish(item, _ended(item))
            elif runner.concurrent and was_dying:
                self._finish(item, Done("preempted", error="a call beside it had to be killed"))
            elif (place == 0 and not runner.spent) or runner.concurrent:
                self._finish(item, Done("failed", exit_code=code, error=_death(code)))
            else:
                unstarted.append(item)
        self._waiting.extendleft(reversed(unstarted))
        if not runner.loaded and not runner.retiring and self._broken is None and not self._stopping:
            self._break(f"a process for functions could not start: {_death(code)}")
        self._changed.set()
        if not self._stopping:
            self._deal()

    # Ending calls ----------------------------------------------------------------------------------------

    def _must_end(self, work: object) -> None:
        """An attempt must end: at once if it has not begun, else gently, and by force after the grace."""
        for item in self._waiting:
            if item.work is work:
                self._waiting.remove(item)
                self._finish(item, _ended(item))
                return
        for runner in self._runners:
            for item in runner.items.values():
                if item.work is work:
                    self._end(runner, item)
                    return

    def _end(self, runner: RunnerProcess, item: Item) -> None:
        if runner.concurrent:
            runner.cancel(item)
            self._dying_after(runner, item)
        elif runner.head is item:
            runner.kill(signal.SIGTERM)
            self._dying.setdefault(runner, self._clock.monotonic() + GRACE_S)
        elif not runner.recalled:
            runner.recall()  # not begun: it comes back, and ends among the waiting
        self._tick_on()

    def _dying_after(self, runner: RunnerProcess, item: Item) -> None:
        """One of several in a runner has the grace to end by itself; then all of it has to go."""
        asyncio.get_running_loop().call_later(GRACE_S, self._kill_if_still, runner, item)

    def _kill_if_still(self, runner: RunnerProcess, item: Item) -> None:
        if runner.items.get(item.number) is item:
            self._dying[runner] = self._clock.monotonic()
            runner.kill(signal.SIGKILL)

    # The pool's own clock --------------------------------------------------------------------------------

    def _tick_on(self) -> None:
        if not self._ticking and not self._stopping:
            self._ticking = True
            asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        """Looks after what is late. Runs only while there is something to look after."""
        self._ticking = False
        now = self._clock.monotonic()
        for runner, kill_at in list(self._dying.items()):
            if now >= kill_at:
                runner.kill(signal.SIGKILL)
        for runner in list(self._runners):
            self._look_after(runner, now)
        if self._waiting:
            if now - self._waiting[0].since > PATIENCE_S:
                self._make_room(self._waiting[0].function)
            self._deal()
        if self._waiting or any(r.items or not r.ready for r in self._runners) or len(self._runners) > self._kept:
            self._tick_on()

    def _make_room(self, function: str) -> None:
        """For calls that have waited: more runners, or at the limit one in place of an idle one of the other sort."""
        if self._broken is not None:
            return
        if self._may_start():
            starting = sum(not r.ready for r in self._runners)
            for _ in range(min(STARTING - starting, len(self._waiting))):
                self._grow()
        elif len(self._runners) >= self._host.slots and function not in self._concurrent:
            idle = next((r for r in self._runners if r.concurrent and not r.items and not r.retiring), None)
            if idle is not None:
                idle.retiring = True
                idle.kill(signal.SIGKILL)

    def _look_after(self, runner: RunnerProcess, now: float) -> None:
        begun = list(runner.items.values()) if runner.concurrent else [i for i in (runner.head,) if i is not None]
        for item in begun:
            late = now - item.since
            if late > item.work.definition.timeout_s and item.work.stop_outcome is None:
                item.work.end("timed_out")
            elif late > PATIENCE_S and len(runner.items) > 1 and not runner.concurrent and not runner.recalled:
                runner.recall()
        spare = len(self._runners) > self._kept
        if spare and not runner.items and runner.ready and now - self._runners[runner] > IDLE_S:
            runner.kill(signal.SIGKILL)

    def _settle_down(self, runner: RunnerProcess) -> None:
        if not runner.items and runner in self._runners:
            self._runners[runner] = self._clock.monotonic()
            if runner.retiring:
                runner.kill(signal.SIGKILL)

    def _may_start(self) -> bool:
        """Whether one more runner is allowed, and would help: there are enough as long as a few are not held up.

        Quick calls that wait do so for the processor, and more processes would only make it worse.
        """
        now = self._clock.monotonic()
        living = [r for r in self._runners if not r.retiring]
        held_up = sum(r.concurrent or ((head := r.head) is not None and now - head.since > PATIENCE_S) for r in living)
        return not self._stopping and len(living) < self._host.slots and len(living) - held_up < self._kept

    def _grow(self) -> None:
        if len([r for r in self._runners if not r.retiring]) >= self._host.slots:
            return
        runner = RunnerProcess(self, self._host.children)
        self._runners[runner] = self._clock.monotonic()
        task = asyncio.get_running_loop().create_task(self._start(runner, self._host.modules))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self, runner: RunnerProcess, modules: Sequence[str]) -> None:
        try:
            await runner.start(modules, self._wrap)
        except OSError as error:
            log.error("a runner can't be started", error=str(error))
            self._runners.pop(runner, None)
            self._broken = f"a process for functions can't be started: {error}"
            self._deal()
        self._changed.set()


def _not_yet(module: str) -> bool:
    return "/" in module and not Path(module).exists()


def _done(item: Item, answer: calls.Returned) -> Done:
    if item.work.stop_outcome is not None:
        return _ended(item)
    if answer.error is not None:
        return Done("failed", error=answer.error, retry=answer.retry)
    # Decoded nowhere on its way: the api reads it as the runner wrote it.
    return Done("succeeded", result=None if answer.result == NOTHING else msgspec.Raw(answer.result))


def _ended(item: Item) -> Done:
    outcome = item.work.stop_outcome
    assert outcome is not None
    limit = item.work.definition.timeout_s
    return Done(outcome, error=f"timed out after {limit:g} s" if outcome == "timed_out" else outcome)


def _death(code: int) -> str:
    if code >= 0:
        return f"the function's process ended with exit code {code}"
    try:
        return f"the function's process was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"the function's process was ended by signal {-code}"
