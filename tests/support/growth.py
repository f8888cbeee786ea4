"""Finds calls whose CPU time grows faster than their input, or whose memory is a multiple of it.

CPU time of this process is measured, not the clock, and only far above what such a call takes; a finding counts only if
it repeats. A CPU timer ends a call that would not return: the matcher of regular expressions checks for signals.
"""

from __future__ import annotations

import gc
import math
import os
import signal
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

LONG_SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
"""With `FUZZ_SECONDS`, random searches go on for so long; otherwise they are short and the same every time."""
MOST_EXPONENT = 1.6
FLOOR_S = 0.03
"""Calls below this are not examined further: their growth is noise."""
LIMIT_S = 0.5
"""A call promised to take 100 ms is a finding above this."""
STOP_S = 1.0
MOST_GROWTH = 10
FLOOR_BYTES = 24_000_000
REPEATS = 4


class Endless(Exception):
    """A call used more CPU time than it may."""


@dataclass(frozen=True, slots=True)
class Pump:
    """An input of any size: `prefix`, then `pump` repeated, then `suffix`."""

    prefix: str
    pump: str
    suffix: str = ""

    def __call__(self, size: int) -> str:
        return self.prefix + self.pump * max(1, size // len(self.pump)) + self.suffix


def _loop_s() -> float:
    begin = time.process_time()
    sum(range(300_000))
    return time.process_time() - begin


_BEST_LOOP_S = min(_loop_s() for _ in range(20))


def slowness() -> float:
    """How much CPU time a fixed loop takes now, as a multiple of the least it took: neighbours slow a core down."""
    return max(1.0, _loop_s() / _BEST_LOOP_S)


@contextmanager
def _cpu_limit(stop_s: float) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise Endless

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, stop_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def cpu_s(call: Callable[[Any], object], given: Any, *, stop_s: float = STOP_S) -> float:
    """The CPU seconds of one call; infinite if it does not return. What it raises does not matter."""
    gc.disable()  # a collection costs as much as all objects of the tests, whenever it comes
    begin = time.process_time()
    try:
        with _cpu_limit(stop_s):
            call(given)
    except Endless:
        return math.inf
    except Exception:
        pass
    finally:
        lasted = time.process_time() - begin
        gc.enable()
    return lasted


def finding(call: Callable[[Any], object], make: Callable[[int], Any], *, cap: int, limit_s: float = LIMIT_S) -> str:
    """Return what is wrong with the growth of a call up to inputs of size `cap`; empty if nothing is, repeatedly."""
    wrong = ""
    for _ in range(REPEATS):
        if not (wrong := _finding(call, make, cap, limit_s)):
            return ""
    return wrong


def _finding(call: Callable[[Any], object], make: Callable[[int], Any], cap: int, limit_s: float) -> str:
    times: list[tuple[int, float]] = []
    for size in _sizes(cap):
        times.append((size, cpu_s(call, make(size), stop_s=max(STOP_S, 2 * limit_s))))
        if times[-1][1] > limit_s * slowness():
            return f"{times[-1][1]:.2f} s of CPU time at size {size:,}, of at most {cap:,}"
        if len(times) >= 2 and times[-1][1] > FLOOR_S:
            (n, before), (m, after) = times[-2:]
            exponent = math.log(after / max(before, 1e-5)) / math.log(m / n)
            if exponent > MOST_EXPONENT and after > FLOOR_S * 2:
                return f"grows with the power {exponent:.1f}: {after:.3f} s of CPU time at size {m:,}"
    return ""


def _sizes(cap: int) -> Iterator[int]:
    """Sizes that quadruple up to the cap; small at first, because the time may grow exponentially."""
    size = min(24, cap)
    while size * 2 < cap:
        yield size
        size *= 4
    yield cap


def memory_finding(call: Callable[[Any], object], given: Any, size: int) -> str:
    """Return how much memory a call takes, if that is more than ten times its input."""
    tracemalloc.start()
    try:
        call(given)
    except Exception:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    most = FLOOR_BYTES + MOST_GROWTH * size
    return f"{peak:,} bytes of memory for an input of {size:,}" if peak > most else ""
