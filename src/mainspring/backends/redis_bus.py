"""The bus on Redis publish/subscribe. PostgreSQL carries the hints while Redis is unavailable.

Every process listens on both. A hint is published on Redis if this process is connected to it, and with NOTIFY
otherwise, so losing Redis costs a few milliseconds per hint. A subscriber that lost its own connection to Redis misses
what others publish there until it is connected again; then it checks for missed work, as its slow poll does meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from itertools import islice
from typing import Any
from uuid import uuid4

import redis.asyncio as redis
import structlog
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, AuthorizationError, RedisError

from mainspring.backends.engine_url import public_url
from mainspring.domain.errors import Invalid
from mainspring.service import Loops, Service, together
from mainspring.store.bus import GATHER_S, MAX_BATCH, MAX_PENDING, PostgresBus
from mainspring.store.hints import Hints, add_hint, text_of
from mainspring.telemetry import metrics

log = structlog.get_logger()

ALIVE_S = 0.5
"""How often the server must answer."""
SILENCE_S = 1.0
"""A server that is silent for longer is unavailable, and the hint is sent again through the database. A submission may
first have waited 0.5 s for the shared rate limiter on the same server; together they stay below 2 s."""
LOST = (RedisError, OSError, TimeoutError)


class RedisBus(Service):
    """Implements ports.Bus on a Redis server (or Valkey), above the bus of the database."""

    def __init__(self, url: str, below: PostgresBus, *, prefix: str) -> None:
        self._url = url
        self._below = below
        self._prefix = f"{prefix}:"
        self._me = uuid4().hex
        self._loops = Loops("redis")
        self._pending: Hints = {}
        self._wake = asyncio.Event()
        self._connected = False
        self._tried = asyncio.Event()
        metrics.ENGINE_UP.labels("bus", "redis").set(0)

    @property
    def connected(self) -> bool:
        return self._connected

    def subscribe(self, channel: str, hear: Callable[[str], None], *, on_gap: Callable[[], None]) -> None:
        """Call before `start`."""
        self._below.subscribe(channel, hear, on_gap=on_gap)

    async def start(self) -> None:
        await self._check()
        await self._below.start()
        self._below.hand_hints_to(self)
        self._loops.forever("bus", self._serve, backoff_s=0.1)

    async def ready(self) -> None:
        """Return once the database's bus is ready and Redis has answered once, or failed to."""
        await self._below.ready()
        await self._tried.wait()

    async def stop(self) -> None:
        await self._loops.stop()
        self._pass_down(dict(self._pending))
        self._pending.clear()
        metrics.ENGINE_UP.remove("bus", "redis")
        await self._below.stop()

    def publish(self, channel: str, payload: str, *, lowest: int | None = None, only_here: bool = False) -> None:
        self._below.deliver(channel, text_of(payload, lowest))
        if only_here:
            return
        if not self._connected:
            self._below.send_to_others(channel, payload, lowest)
        elif len(self._pending) < MAX_PENDING:
            add_hint(self._pending, channel, payload, lowest)
            self._wake.set()

    async def _check(self) -> None:
        """Raise Invalid if Redis refuses the credentials. An unreachable one is no error: the database takes over."""
        client = self._client()
        try:
            await client.ping()
            await client.publish(f"{self._prefix}check", "")
        except (AuthenticationError, AuthorizationError) as error:
            raise Invalid(f"--bus {public_url(self._url)}: {error}") from None
        except LOST as error:
            log.warning("engine.unreachable", role="bus", url=public_url(self._url), error=str(error))
        finally:
            await client.aclose()

    def _client(self) -> Any:
        try:
            return redis.from_url(
                self._url,
                decode_responses=True,
                socket_connect_timeout=SILENCE_S,
                socket_timeout=SILENCE_S,
                retry=Retry(NoBackoff(), 0),  # what waits goes through the database instead
            )
        except (ValueError, TypeError) as error:
            raise Invalid(f"--bus {public_url(self._url)}: {error}") from None

    async def _serve(self) -> None:
        """One life of the connection to Redis: subscribe, then receive and send until it breaks."""
        client = self._client()
        listener = client.pubsub(ignore_subscribe_messages=True)
        try:
            async with asyncio.timeout(SILENCE_S):
                await listener.subscribe(*[self._prefix + channel for channel in ("check", *self._below.channels)])
            self._set_connected(True)
            self._below.announce_gap()
            await together("redis", self._receive(listener), self._ping(listener), self._send_all(client))
        except LOST as error:
            raise ConnectionError(f"Redis is unavailable: {error!r}") from None
        finally:
            self._set_connected(False)
            self._tried.set()
            self._pass_down(dict(self._pending))
            self._pending.clear()
            for end in (listener, client):
                with contextlib.suppress(*LOST):
                    await end.aclose()

    def _set_connected(self, connected: bool) -> None:
        if connected != self._connected:
            log.info("engine.connected" if connected else "engine.lost", role="bus", url=public_url(self._url))
        self._connected = connected
        metrics.ENGINE_UP.labels("bus", "redis").set(connected)
        if connected:
            self._tried.set()

    async def _receive(self, listener: Any) -> None:
        while True:
            # No timeout here: redis-py loses cancellations then. A server that answers no PING exceeds SILENCE_S.
            message = await listener.get_message(timeout=None)
            if message is None or message["type"] != "message":
                continue
            sender, _, payload = str(message["data"]).partition(" ")
            if sender != self._me:
                self._below.deliver(str(message["channel"]).removeprefix(self._prefix), payload)

    async def _ping(self, listener: Any) -> None:
        while True:
            await asyncio.sleep(ALIVE_S)
            await listener.ping()

    async def _send_all(self, client: Any) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            batch = dict(islice(self._pending.items(), MAX_BATCH))
            if not batch:
                continue
            for key in batch:
                del self._pending[key]
            try:
                pipeline = client.pipeline(transaction=False)
                for (channel, payload), lowest in batch.items():
                    pipeline.publish(self._prefix + channel, f"{self._me} {text_of(payload, lowest)}")
                await pipeline.execute()
            except BaseException:
                for (channel, payload), lowest in batch.items():
                    add_hint(self._pending, channel, payload, lowest)
                raise  # `_serve` sends them through the database
            await asyncio.sleep(GATHER_S)
            if self._pending:
                self._wake.set()

    def _pass_down(self, hints: Hints) -> None:
        """Send hints through the database, which may repeat some that Redis has delivered."""
        for (channel, payload), lowest in hints.items():
            self._below.send_to_others(channel, payload, lowest)
