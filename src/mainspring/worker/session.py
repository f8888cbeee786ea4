"""A session: one life of a worker under a lease, renewed by a heartbeat thread.

The thread shares only a few plain values with the event loop, so work that blocks the loop never costs the lease. It
passes every renewal on to the guardian.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable

import structlog

from mainspring import wire
from mainspring.clock import SystemClock, boottime
from mainspring.codec import encode
from mainspring.domain.errors import MainspringError
from mainspring.http_client import BlockingNetwork, HttpClient, HttpError, finish
from mainspring.http_client.route import tls_for
from mainspring.worker.cleanup import GuardianPipe
from mainspring.worker.slots import Slots
from mainspring.worker.transport.api_client import JSON, ApiAddress, ApiUnavailable, SessionEnded, read_answer
from mainspring.worker.usage import UsageTotals

log = structlog.get_logger()

KEEPALIVE_S = 60.0
"""Keeps the connection from one heartbeat to the next; the default would close it just before."""
PROGRESS_S = 1.0
"""How often the thread checks for progress; it is sent at most this often, for all attempts together."""
RETRY_S = 1.0
RESPONSE_S = 5.0


class Session:
    """Renews the lease until stopped, and passes cancellations and the session's end to the event loop."""

    def __init__(
        self,
        address: ApiAddress,
        registered: wire.Registered,
        *,
        guardian: GuardianPipe,
        slots: Slots,
        on_end: Callable[[], None],
        usage: UsageTotals | None = None,
    ) -> None:
        self._usage = usage
        self.session_id = registered.session_id
        self.draining = False
        self.renew_by_stream: Callable[[wire.Heartbeat], wire.Beat | None] = lambda _: None
        self._address = address
        self._registered = registered
        self._guardian = guardian
        self._slots = slots
        self._on_end = on_end
        self._clock = SystemClock()
        self._sent_progress: list[wire.ProgressReport] = []
        self.failure: str | None = None  # why the last heartbeat was not answered
        self._skipped = False  # whether the last heartbeat was skipped
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        session = {
            "session_id": str(self.session_id),
            "url": self._address.url,
            "token": self._address.token,
            "key": self._address.session_key,
        }
        self._guardian.send(f"session {json.dumps(session)}")
        self._guardian.send(f"lease {boottime() + self._registered.lease_s} {self._registered.lease_s}")
        self._thread.start()

    def stop(self) -> None:
        """Send no more heartbeats; one that is already sent completes."""
        self._stop.set()

    async def ended(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join, 10)

    def _run(self) -> None:
        client = HttpClient(
            self._address.url,
            self._address.headers,
            tls=tls_for(self._address.url),
            network=BlockingNetwork(),
            connect_s=RESPONSE_S,
            keep_alive_s=KEEPALIVE_S,
        )
        try:
            self._send_heartbeats(client)
        finally:
            client.close()

    def _send_heartbeats(self, client: HttpClient) -> None:
        wait_s = self._registered.heartbeat_s
        while not self._wait(wait_s):
            if self._skips():
                continue
            try:
                self._send_heartbeat(client)
                self.failure = None
                wait_s = self._registered.heartbeat_s
            except SessionEnded as error:
                log.warning("session.ended", reason=str(error))
                self._loop.call_soon_threadsafe(self._on_end)
                return
            except (ApiUnavailable, HttpError) as error:
                log.warning("heartbeat.failed", error=str(error), retry_s=RETRY_S)
                self.failure = str(error)
                self._skipped, wait_s = True, RETRY_S
            except MainspringError as error:
                log.error("heartbeat.refused", error=str(error))
                wait_s = self._registered.heartbeat_s
            except Exception:
                # A bug in this worker: without this thread the lease would expire, and every attempt be lost.
                log.exception("heartbeat.failed", retry_s=RETRY_S)
                self._skipped, wait_s = True, RETRY_S

    def _skips(self) -> bool:
        """Whether to skip this heartbeat: every other one of an idle worker, whose lease lasts four of them."""
        idle = not self.draining and not self._slots.held() and self._progress() == self._sent_progress
        self._skipped = idle and not self._skipped
        return self._skipped

    def _wait(self, wait_s: float) -> bool:
        """Wait until the next heartbeat is due or there is new progress; return whether the session was stopped."""
        while wait_s > PROGRESS_S:
            if self._stop.wait(PROGRESS_S):
                return True
            wait_s -= PROGRESS_S
            if self._progress() != self._sent_progress:
                return False
        return self._stop.wait(wait_s)

    def _progress(self) -> list[wire.ProgressReport]:
        return self._slots.progress() if "progress" in self._registered.takes else []

    def _send_heartbeat(self, client: HttpClient) -> None:
        usage = [] if self._usage is None else self._usage.take()
        try:
            self._send_report(client, usage)
        except BaseException:
            if self._usage is not None:
                self._usage.keep(usage)
            raise

    def _send_report(self, client: HttpClient, usage: list[wire.JobUsage]) -> None:
        sent_boottime, sent = boottime(), self._clock.monotonic()
        progress = self._progress()
        body = wire.Heartbeat(
            session_id=self.session_id,
            running=self._slots.held(),
            draining=self.draining,
            progress=progress,
            usage=usage,
        )
        beat = self.renew_by_stream(body)
        if beat is None:
            # There is no stream, or the event loop is blocked: this thread has a connection of its own.
            sent_boottime, sent = boottime(), self._clock.monotonic()
            response = finish(
                client.request(
                    "POST",
                    "/api/v1/worker/heartbeat",
                    encode(body),
                    headers=JSON,
                    timeout_s=RESPONSE_S,
                    repeatable=True,
                )
            )
            beat = read_answer(response.status, response.body, wire.Beat)
        # Counted from before the request was sent: never longer than what the database granted.
        self._guardian.send(f"lease {sent_boottime + beat.lease_s} {beat.lease_s}")
        self._sent_progress = progress
        if beat.gone:
            self._loop.call_soon_threadsafe(self._slots.end_lost, beat.gone, sent)
        if beat.cancels:
            self._loop.call_soon_threadsafe(self._slots.cancel, beat.cancels)
        if beat.preempts:
            self._loop.call_soon_threadsafe(self._slots.preempt, beat.preempts)
