"""Readiness: named checks of one process, each with a reason while it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from mainspring import __version__, wire
from mainspring.clock import Clock, SystemClock
from mainspring.service import Loops, Service
from mainspring.ttl_cache import TtlCache

Check = Callable[[], Awaitable[str | None]]
"""Returns why the process is not ready, or None."""

READY_S = 0.25
"""The routes need no credential, so one round of checks serves all requests of a moment."""
CHECK_TIMEOUT_S = 2.0
BEAT_S = 0.5
STUCK_S = 2.0
"""An event loop without a turn for this long is stuck: nothing else of this process can be trusted."""
DEAD_S = 60.0
"""After this long, the process does not recover: liveness fails, and a supervisor should restart it."""


class Readiness(Service):
    """The checks of a process. `start` begins to watch the event loop; everything may be asked from any thread."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._checks: dict[str, Check] = {}
        self._recent: TtlCache[None, wire.Health] = TtlCache(lambda: READY_S)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loops = Loops("health")
        self._turn_at = self._clock.monotonic()
        self.schema_version = 0
        self.starting = True
        self.stopping = False
        self.notes: list[str] = []  # shown to strangers too

    def add(self, name: str, check: Check) -> None:
        self._checks[name] = check

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._turn_at = self._clock.monotonic()
        self._loops.forever("beat", self._beat)

    async def stop(self) -> None:
        await self._loops.stop()

    @property
    def stuck_s(self) -> float:
        """Seconds since the last turn of the event loop."""
        return self._clock.monotonic() - self._turn_at

    async def health(self) -> wire.Health:
        """Run every check, unless that was done a moment ago. Call on the event loop."""
        return await self._recent.get(None, self._run_checks)

    def health_from_thread(self) -> wire.Health:
        """Like `health`, for a thread: a stuck event loop is a result, not a wait."""
        if self._loop is None or self.stuck_s > STUCK_S:
            return self._result({"event_loop": f"stuck: no turn for {self.stuck_s:.1f} s"})
        asked = asyncio.run_coroutine_threadsafe(self.health(), self._loop)
        try:
            return asked.result(CHECK_TIMEOUT_S + STUCK_S)
        except TimeoutError:
            asked.cancel()
            return self._result({"event_loop": f"stuck: no turn for {self.stuck_s:.1f} s"})

    def is_alive(self) -> bool:
        return self.stuck_s < DEAD_S

    async def _beat(self) -> None:
        self._turn_at = self._clock.monotonic()
        await asyncio.sleep(BEAT_S)

    async def _run_checks(self) -> wire.Health:
        found = {"event_loop": "ok"}
        if self.starting or self.stopping:
            found["process"] = "starting" if self.starting else "stopping"
        reasons = await asyncio.gather(*(self._ask(check) for check in self._checks.values()))
        return self._result(found | dict(zip(self._checks, reasons, strict=True)))

    async def _ask(self, check: Check) -> str:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                return await check() or "ok"
        except TimeoutError:
            return f"no answer within {CHECK_TIMEOUT_S:g} s"

    def _result(self, checks: dict[str, str]) -> wire.Health:
        return wire.Health(
            status="ok" if all(reason == "ok" for reason in checks.values()) else "unavailable",
            version=__version__,
            schema_version=self.schema_version,
            checks=checks,
            notes=self.notes,
        )
