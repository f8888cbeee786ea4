"""A session: one life of a worker under a lease, with its heartbeat in a thread of its own.

The thread shares nothing with the event loop but a few plain values, so work that blocks the loop never
costs the lease. The guardian learns of every renewal through its pipe.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from uuid import UUID

import httpx2
import structlog

from mainspring import wire
from mainspring.clock import SystemClock, boottime
from mainspring.codec import encode
from mainspring.domain.errors import MainspringError
from mainspring.worker.transport.api_link import Address, ApiAway, SessionEnded, read_answer

log = structlog.get_logger()

KEEP_S = 60.0
"""The connection is kept from one heartbeat to the next; by default it would be closed just before."""
PROGRESS_S = 1.0
"""So often the heartbeat looks for progress; it is told at most once in that time, for all attempts together."""


class GuardianPipe:
    """The worker's end of the guardian's pipe. Implements executors.Children."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mainspring.worker.guardian"], stdin=subprocess.PIPE, start_new_session=True
        )
        self._lock = threading.Lock()

    def born(self, group: int) -> None:
        self.tell(f"born {group}")

    def gone(self, group: int) -> None:
        self.tell(f"gone {group}")

    def cell(self, door: str) -> None:
        self.tell(f"cell {door}")

    def cell_gone(self, door: str) -> None:
        self.tell(f"cell_gone {door}")

    def folder(self, path: str) -> None:
        self.tell(f"folder {path}")

    def engine(self, path: str) -> None:
        self.tell(f"engine {path}")

    def tell(self, line: str) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            with self._lock:
                pipe.write(line.encode() + b"\n")
                pipe.flush()
        except OSError:
            log.error("the guardian is gone")

    def close(self) -> None:
        self.tell("goodbye")
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(5)


class Session:
    """Keeps the lease alive until told to stop; tells the loop about cancellations and about its end."""

    def __init__(
        self,
        address: Address,
        registered: wire.Registered,
        *,
        guardian: GuardianPipe,
        running: Callable[[], list[UUID]],
        on_cancel: Callable[[list[UUID]], None],
        on_preempt: Callable[[list[wire.Preempt]], None],
        on_end: Callable[[], None],
        on_gone: Callable[[list[UUID], float], None],
        progress: Callable[[], list[wire.ProgressReport]],
    ) -> None:
        self.session_id = registered.session_id
        self.takes = registered.takes
        self.draining = False
        self._address = address
        self._registered = registered
        self._guardian = guardian
        self._running = running
        self._on_cancel = on_cancel
        self._on_preempt = on_preempt
        self._on_end = on_end
        self._on_gone = on_gone
        self._progress = progress
        self._clock = SystemClock()
        self._told: list[wire.ProgressReport] = []
        self._rested = False
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._guardian.tell(
            "session "
            + json.dumps({"session_id": str(self.session_id), "url": self._address.url, "token": self._address.token})
        )
        self._guardian.tell(f"lease {boottime() + self._registered.lease_s}")
        self._thread.start()

    def stop(self) -> None:
        """No more heartbeats; one that is under way ends by itself."""
        self._stop.set()

    async def ended(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join, 10)

    def _beat_on(self) -> None:
        with httpx2.Client(
            base_url=self._address.url,
            headers=self._address.headers,
            timeout=5,
            limits=httpx2.Limits(keepalive_expiry=KEEP_S),
        ) as client:
            self._beat_with(client)

    def _beat_with(self, client: httpx2.Client) -> None:
        wait = self._registered.heartbeat_s
        while not self._sleep(wait):
            if self._rests():
                continue
            try:
                self._beat(client)
                wait = self._registered.heartbeat_s
            except SessionEnded as error:
                log.warning("the session has ended", reason=str(error))
                self._loop.call_soon_threadsafe(self._on_end)
                return
            except (ApiAway, httpx2.TransportError) as error:
                log.warning("heartbeat failed, trying again", error=str(error))
                self._rested, wait = True, 1.0
            except MainspringError as error:
                log.error("heartbeat refused", error=str(error))
                wait = self._registered.heartbeat_s
            except Exception:
                # An error of our own: without this thread the lease would end, and all work with it.
                log.exception("heartbeat failed by an error of this worker, trying again")
                self._rested, wait = True, 1.0

    def _rests(self) -> bool:
        """Of a worker with nothing in hand every other heartbeat is left out: its lease is four of them long."""
        idle = not self.draining and not self._running() and self._news() == self._told
        self._rested = idle and not self._rested
        return self._rested

    def _sleep(self, wait: float) -> bool:
        """Until the next heartbeat is due, or there is progress to tell; whether the session has ended."""
        while wait > PROGRESS_S:
            if self._stop.wait(PROGRESS_S):
                return True
            wait -= PROGRESS_S
            if self._news() != self._told:
                return False
        return self._stop.wait(wait)

    def _news(self) -> list[wire.ProgressReport]:
        return self._progress() if "progress" in self._registered.takes else []

    def _beat(self, client: httpx2.Client) -> None:
        asked_at, asked = boottime(), self._clock.monotonic()
        news = self._news()
        body = wire.Heartbeat(
            session_id=self.session_id, running=self._running(), draining=self.draining, progress=news
        )
        response = client.post("/api/v1/worker/heartbeat", content=encode(body))
        beat = read_answer(response.status_code, response.content, wire.Beat)
        # Counted from before the request left: never longer than what the database granted.
        self._guardian.tell(f"lease {asked_at + beat.lease_s}")
        self._told = news
        if beat.gone:
            self._loop.call_soon_threadsafe(self._on_gone, beat.gone, asked)
        if beat.cancels:
            self._loop.call_soon_threadsafe(self._on_cancel, beat.cancels)
        if beat.preempts:
            self._loop.call_soon_threadsafe(self._on_preempt, beat.preempts)
