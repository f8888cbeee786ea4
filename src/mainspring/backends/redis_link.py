"""One connection to Redis for one role. Commands are sent in the order of their calls, many in a round trip.

A server that does not respond within `ANSWER_S`, or that refuses a command, counts as lost: what was called fails with
EngineLost, and so does every call until the server responds again. Callers then work without Redis.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from itertools import islice
from typing import Any

import redis.asyncio as redis
import structlog
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, AuthorizationError, RedisError, ResponseError

from mainspring.backends.engine_url import public_url
from mainspring.domain.errors import Invalid
from mainspring.ports import EngineLost
from mainspring.service import Loops, Service
from mainspring.telemetry import metrics

log = structlog.get_logger()

ALIVE_S = 1.0
"""How often an idle server must respond."""
ANSWER_S = 0.5
CONNECT_S = 3.0
MOST_WAITING = 10_000
MOST_AT_ONCE = 500
LOST = (RedisError, OSError, TimeoutError)


class RedisLink(Service):
    """The connection of one role, and the scripts that it runs."""

    def __init__(self, url: str, *, option: str, role: str, scripts: Sequence[str] = ()) -> None:
        """`option` is named in errors; `role` in metrics and logs."""
        self._url = url
        self._option = option
        self._role = role
        self._scripts = scripts
        self._digests: dict[str, str] = {}
        self._waiting: dict[asyncio.Future[Any], tuple[Any, ...]] = {}
        self._wake = asyncio.Event()
        self._connected = False
        self._tried = asyncio.Event()
        self._loops = Loops(f"redis-{role}")
        metrics.ENGINE_UP.labels(role, "redis").set(0)

    @property
    def connected(self) -> bool:
        return self._connected

    def call(self, *command: Any) -> asyncio.Future[Any]:
        """Send a command; the result is its answer, or EngineLost. It need not be awaited."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_retrieve)
        if not self._connected:
            answer.set_exception(EngineLost("Redis is unavailable"))
        elif len(self._waiting) >= MOST_WAITING:
            answer.set_exception(EngineLost("too many commands wait for Redis"))
        else:
            self._waiting[answer] = command
            self._wake.set()
        return answer

    def run(self, script: str, keys: Sequence[str], *arguments: Any) -> asyncio.Future[Any]:
        """Run one of the scripts of this link."""
        return self.call("EVALSHA", self._digests.get(script, ""), len(keys), *keys, *arguments)

    async def start(self) -> None:
        """Raise Invalid if Redis refuses the credentials or the scripts. An unreachable server is no error."""
        client = self._client()
        try:
            await client.ping()
            for script in self._scripts:
                await client.script_load(script)
        except (AuthenticationError, AuthorizationError, ResponseError) as error:
            raise Invalid(f"{self._option} {public_url(self._url)}: {error}") from None
        except LOST as error:
            log.warning("engine.unreachable", role=self._role, url=public_url(self._url), error=str(error))
        finally:
            await client.aclose()
        self._loops.forever("serve", self._serve, backoff_s=0.1)

    async def ready(self) -> None:
        """Return once Redis has responded, or failed to."""
        await self._tried.wait()

    async def stop(self) -> None:
        await self._loops.stop()
        metrics.ENGINE_UP.remove(self._role, "redis")

    def _client(self) -> Any:
        try:
            return redis.from_url(
                self._url, socket_connect_timeout=CONNECT_S, socket_timeout=ANSWER_S, retry=Retry(NoBackoff(), 0)
            )
        except (ValueError, TypeError) as error:
            raise Invalid(f"{self._option} {public_url(self._url)}: {error}") from None

    async def _serve(self) -> None:
        """One life of the connection: send what is called until it breaks."""
        client = self._client()
        try:
            for script in self._scripts:
                self._digests[script] = str(await client.script_load(script))
            await client.ping()
            self._set_connected(True)
            while True:
                if not self._waiting:
                    self._wake.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(ALIVE_S):
                            await self._wake.wait()
                await self._send(client)
        except LOST as error:
            raise ConnectionError(f"Redis is unavailable: {error!r}") from None
        finally:
            self._set_connected(False)
            for answer in self._waiting:
                _fail(answer)
            self._waiting.clear()
            with contextlib.suppress(*LOST):
                await client.aclose()

    async def _send(self, client: Any) -> None:
        """Send the waiting commands, or a PING, and set their results. An error of one ends the connection."""
        batch = dict(islice(self._waiting.items(), MOST_AT_ONCE))
        for answer in batch:
            del self._waiting[answer]
        pipeline = client.pipeline(transaction=False)
        for command in batch.values():
            pipeline.execute_command(*command)
        if not batch:
            pipeline.ping()
        try:
            results = await pipeline.execute(raise_on_error=False)
            for answer, result in zip(batch, results, strict=False):
                if not answer.done() and not isinstance(result, Exception):
                    answer.set_result(result)
            for result in results:
                if isinstance(result, Exception):
                    raise result
        finally:
            for answer in batch:
                _fail(answer)

    def _set_connected(self, connected: bool) -> None:
        if connected != self._connected:
            event = "engine.connected" if connected else "engine.lost"
            log.info(event, role=self._role, url=public_url(self._url))
        self._connected = connected
        metrics.ENGINE_UP.labels(self._role, "redis").set(connected)
        self._tried.set()


def _fail(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(EngineLost("Redis is unavailable"))


def _retrieve(answer: asyncio.Future[Any]) -> None:
    if not answer.cancelled():
        answer.exception()
