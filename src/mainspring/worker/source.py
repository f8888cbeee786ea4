"""Where the attempts of a session come from: its stream or, where no stream can be opened, long polls."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import random
from collections.abc import Callable

import structlog

from mainspring import wire
from mainspring.worker.poller import Poller
from mainspring.worker.stream import StreamBroken, StreamUnsupported, WorkStream
from mainspring.worker.transport.api_client import ApiClient, ApiUnavailable, Refused, SessionEnded

log = structlog.get_logger()

RECALL_S = 1.0
BEAT_S = 2.0
"""How long a heartbeat may take on the stream before the heartbeat thread sends it itself."""
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.05, 10.0
SHORT_S = 5.0
SHORT_STREAMS = 3
"""So many streams in a row that broke within `SHORT_S`: something on the way may not pass streams on."""
FIRST_POLLING_S, POLLING_S = 30.0, 900.0
"""How long to poll before a stream is tried again; longer each time, as far as `POLLING_S`."""


class WorkSource:
    def __init__(
        self, api: ApiClient, stream: WorkStream, poller: Poller, *, streams: bool, on_open: Callable[[], None]
    ) -> None:
        self._api = api
        self._stream = stream
        self._poller = poller
        self._streams = streams
        self._on_open = on_open
        self._polling = False
        self._loop = asyncio.get_running_loop()

    @property
    def receives(self) -> bool:
        """Whether work can arrive: the stream is open, or polls are answered."""
        return self._stream.is_open or (self._polling and not self._poller.failing)

    def start(self) -> asyncio.Task[None]:
        """Receive attempts until the session ends; the task returned ends then."""
        return asyncio.create_task(self._run(), name="worker.source")

    async def recall(self) -> None:
        """Receive no more attempts, without losing any that were sent; cancellations still arrive."""
        if self._polling:
            await self._poller.recall()
        with contextlib.suppress(TimeoutError, ApiUnavailable, SessionEnded, Refused):
            await asyncio.wait_for(self._stream.recall(), RECALL_S)

    async def results(self, body: wire.Results) -> wire.Settled:
        """Report results by the stream, or by a request if there is none or it breaks meanwhile."""
        if self._stream.is_open:
            with contextlib.suppress(ApiUnavailable):
                return await self._stream.results(body)
        return await self._api.results(body)

    def state_capacity(self) -> None:
        """Resources are free: state them now, not with the next results or poll."""
        if self._polling:
            self._poller.refresh()
        else:
            self._stream.state_capacity()

    def renew(self, body: wire.Heartbeat) -> wire.Beat | None:
        """Send a heartbeat by the stream, from another thread; None if that thread has to send it."""
        if not self._stream.is_open:
            return None
        sent = asyncio.run_coroutine_threadsafe(self._stream.heartbeat(body), self._loop)
        try:
            return sent.result(BEAT_S)
        except (ApiUnavailable, concurrent.futures.TimeoutError, concurrent.futures.CancelledError):
            sent.cancel()
            return None

    async def _run(self) -> None:
        failures, backoff_s, polling_s = 0, FIRST_BACKOFF_S, FIRST_POLLING_S
        try:
            while True:
                if not self._streams:
                    await self._poll(None)
                    return
                try:
                    await self._stream.open()
                    opened, backoff_s = self._loop.time(), FIRST_BACKOFF_S
                    log.debug("stream.opened")
                    self._on_open()
                    reason = await self._stream.until_ended()
                    failures += 1
                    if self._loop.time() - opened >= SHORT_S:
                        failures, polling_s = 0, FIRST_POLLING_S
                    log.info("stream.ended", reason=reason)
                except StreamUnsupported as error:
                    failures, polling_s, reason = SHORT_STREAMS, POLLING_S, str(error)
                except (ApiUnavailable, StreamBroken) as error:
                    failures += isinstance(error, StreamBroken)
                    reason = str(error)
                    log.warning("stream.failed", error=reason, retry_s=round(backoff_s, 1))
                    await asyncio.sleep(random.uniform(backoff_s / 2, backoff_s))
                    backoff_s = min(backoff_s * 2, LONGEST_BACKOFF_S)
                if failures >= SHORT_STREAMS:
                    failures = 0
                    log.warning("stream.polling", reason=reason, retry_s=polling_s)
                    await self._poll(polling_s)
                    polling_s = min(polling_s * 2, POLLING_S)
        except (SessionEnded, Refused) as error:
            log.info("stream.refused", reason=str(error))
        finally:
            self._stream.close()

    async def _poll(self, seconds: float | None) -> None:
        """Poll until the session ends, or for so many seconds."""
        self._polling = True
        polling = self._poller.start()
        self._on_open()
        try:
            await asyncio.wait({polling}, timeout=seconds)
            if polling.done():
                polling.result()
                raise SessionEnded("the session has ended")
            await self._poller.recall()
        finally:
            self._polling = False
            polling.cancel()
