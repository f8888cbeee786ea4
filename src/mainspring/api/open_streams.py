"""Open streams and long polls: how many a token may have, and their end when it is revoked."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Literal
from uuid import UUID

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from mainspring.api.auth import Authenticator, Caller
from mainspring.api.problem import problem_of
from mainspring.domain.errors import TooMany, Unauthenticated
from mainspring.ports import CREDENTIALS, Bus
from mainspring.service import Loops, Service
from mainspring.store import browser_sessions
from mainspring.store.db import Database

log = structlog.get_logger()

Kind = Literal["stream", "wait", "worker"]
CHECK_S = 1.0
"""How often credentials of open streams are checked, in case the bus misses a message."""
END_AGAIN_S = 0.5
WAITS_PER_STREAM = 5
"""A long poll has a time limit and costs less than a stream, so there may be more of them."""
STREAMS_PER_PROCESS = 2_000
RETRY_AFTER_S = 5.0
_NOUNS: dict[Kind, str] = {"stream": "live streams", "wait": "waiting requests"}


@dataclass(slots=True, eq=False)
class OpenStream:
    """One open stream or long poll. `end` interrupts it."""

    kind: Kind
    token_id: UUID
    session_id: UUID | None
    end: Callable[[], object]
    is_revoked: bool = False
    is_lost: bool = False

    def lose(self) -> None:
        """The client is gone."""
        self.is_lost = True
        self.end()


class OpenStreams(Service):
    """Counts streams and long polls by token, and ends those of a credential that is revoked, at every api process.

    `per_token` streams may be open at once, and WAITS_PER_STREAM times as many long polls. Worker streams are not
    counted: the number of workers is bounded elsewhere.
    """

    def __init__(self, database: Database, bus: Bus, auth: Authenticator, *, per_token: int) -> None:
        self._database = database
        self._bus = bus
        self._auth = auth
        self._per_token = per_token
        self._open: set[OpenStream] = set()
        self._of_token: Counter[tuple[Kind, UUID]] = Counter()
        self._of_kind: Counter[Kind] = Counter()
        self._loops = Loops("open_streams")
        bus.subscribe(CREDENTIALS, self._on_ended, on_gap=auth.expire_all)

    async def start(self) -> None:
        self._loops.forever("check", self._check)

    async def stop(self) -> None:
        await self._loops.stop()

    def count(self, kind: Kind) -> int:
        return self._of_kind[kind]

    def announce_end(self, credential_id: UUID) -> None:
        """Publish the end of a token or browser session to every api process. Call it after the commit."""
        self._bus.publish(CREDENTIALS, str(credential_id))

    @contextlib.contextmanager
    def opened(self, kind: Kind, caller: Caller, end: Callable[[], object]) -> Iterator[OpenStream]:
        """Hold a place for a stream; raise TooMany if there is none. `end` is called when the credential is revoked."""
        stream = OpenStream(kind, caller.token_id, caller.session_id, end)
        key = (kind, stream.token_id)
        self._admit(key)
        self._open.add(stream)
        self._of_token[key] += 1
        self._of_kind[kind] += 1
        expiry = None if caller.expires_at is None else self._end_at(caller.expires_at, stream)
        try:
            yield stream
        finally:
            if expiry is not None:
                expiry.cancel()
            self._open.discard(stream)
            self._of_kind[kind] -= 1
            self._of_token[key] -= 1
            if not self._of_token[key]:
                del self._of_token[key]

    @contextlib.contextmanager
    def waiting(self, caller: Caller, request: Request) -> Iterator[None]:
        """Hold a place for a long poll while its client is connected and its credential is valid."""
        task = asyncio.current_task()
        assert task is not None
        connection = request.scope.get("connection")
        with self.opened("wait", caller, task.cancel) as stream:
            if connection is not None:
                connection.on_lost = stream.lose
            try:
                yield
            except asyncio.CancelledError:
                if not stream.is_lost and not stream.is_revoked:
                    raise
                task.uncancel()
                raise (ClientDisconnect() if stream.is_lost else Unauthenticated(_ENDED)) from None
            finally:
                if connection is not None:
                    connection.on_lost = None

    def _admit(self, key: tuple[Kind, UUID]) -> None:
        kind = key[0]
        if kind == "worker" or not self._per_token:
            return
        times = WAITS_PER_STREAM if kind == "wait" else 1
        if self._of_token[key] >= self._per_token * times:
            message = (
                f"this token has {self._of_token[key]} {_NOUNS[kind]} open, the most it may; close one, or try later"
            )
            raise TooMany(message, code="too_many_streams", retry_after_s=RETRY_AFTER_S)
        if self._of_kind[kind] >= max(STREAMS_PER_PROCESS, self._per_token) * times:
            message = f"this api process has too many {_NOUNS[kind]} open; try later"
            raise TooMany(message, code="too_many_streams", retry_after_s=RETRY_AFTER_S)

    def _on_ended(self, credential_id: str) -> None:
        self._end(UUID(credential_id))

    def _end(self, credential_id: UUID) -> None:
        self._auth.forget(credential_id)
        ended = [s for s in self._open if credential_id in (s.token_id, s.session_id)]
        for stream in ended:
            stream.is_revoked = True
            self._interrupt(stream)
        if ended:
            log.info("streams.revoked", credential=str(credential_id), streams=len(ended))

    def _end_at(self, expires_at: float, stream: OpenStream) -> asyncio.TimerHandle:
        """End a stream when the JWT of its caller expires."""

        def expire() -> None:
            stream.is_revoked = True
            self._interrupt(stream)

        return asyncio.get_running_loop().call_later(max(0.0, expires_at - monotonic()), expire)

    def _interrupt(self, stream: OpenStream) -> None:
        """End a stream, and again until it has: `asyncio.wait_for` of Python 3.11 can lose a cancellation."""
        if stream in self._open:
            stream.end()
            asyncio.get_running_loop().call_later(END_AGAIN_S, self._interrupt, stream)

    async def _check(self) -> None:
        await asyncio.sleep(CHECK_S)
        if not self._open:
            return
        token_ids = {stream.token_id for stream in self._open}
        session_ids = {stream.session_id for stream in self._open if stream.session_id is not None}
        async with self._database.connection() as connection:
            ended = await browser_sessions.ended_credentials(connection, token_ids=token_ids, session_ids=session_ids)
        for credential_id in ended:
            self._end(credential_id)


_ENDED = "the token was revoked or the session ended"


class LiveResponse(StreamingResponse):
    """A stream that holds a place while it is open, and ends with the credential of its caller."""

    def __init__(
        self,
        streams: OpenStreams,
        caller: Caller,
        events: AsyncIterator[bytes] | AsyncIterator[str],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        sent = {"X-Accel-Buffering": "no", **(headers or {})}
        super().__init__(events, 200, sent, media_type="text/event-stream")
        self._streams, self._caller = streams, caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        has_started = False

        async def note_and_send(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            with self._streams.opened("stream", self._caller, task.cancel) as stream:
                try:
                    await super().__call__(scope, receive, note_and_send)
                except asyncio.CancelledError:
                    if not stream.is_revoked:
                        raise
                    task.uncancel()
                    if not has_started:
                        raise Unauthenticated(_ENDED) from None
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (TooMany, Unauthenticated) as error:
            await problem_of(error)(scope, receive, send)
