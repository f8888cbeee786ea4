"""Polls the api for attempts and begins them."""

from __future__ import annotations

import asyncio
import contextlib
import random

import structlog

from mainspring import wire
from mainspring.service import Loops
from mainspring.worker.attempt import Attempts
from mainspring.worker.session import Session
from mainspring.worker.slots import Slots
from mainspring.worker.transport.api_client import ApiClient, ApiUnavailable, PollAnswer, Refused, SessionEnded

log = structlog.get_logger()

POLL_S = 30.0
BUSY_POLL_S = 2.0
"""While something runs: an execution that needs an idle worker, or more resources, is offered again soon."""
MANY_RUNNING, GATHER_S = 1000, 0.02
"""With so many attempts running, wait for several slots to become free: each poll is a claim."""
FULL_S = 0.2
"""How long to wait for a free slot before polling for cancellations only."""
LARGE_ANSWER = 100
"""From this many executions in one answer on, the next poll is sent before they begin."""
MOST_OFFERED = 10_000
RECALL_S = 1.0
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.1, 10.0


class Poller:
    """The poll loop of one session."""

    def __init__(self, api: ApiClient, session: Session, slots: Slots, attempts: Attempts, *, tasks: Loops) -> None:
        self._api = api
        self._session = session
        self._slots = slots
        self._attempts = attempts
        self._tasks = tasks
        self._task: asyncio.Task[None] | None = None
        self._ahead: asyncio.Task[PollAnswer] | None = None  # sent before the last answer has begun
        self.failing = False
        self._open = False  # a poll waits that states the capacity of when it was sent

    def start(self) -> asyncio.Task[None]:
        """Poll until the session ends or drains; the task returned ends then."""
        self._task = asyncio.create_task(self._poll_forever(), name="worker.poll")
        return self._task

    async def recall(self) -> None:
        """Stop polling without losing attempts: have the api answer the open poll, and begin what it brings."""
        if self._task is None:
            return
        with contextlib.suppress(ApiUnavailable, SessionEnded, Refused):
            await self._poll(free=0, wait_s=0)
        await asyncio.wait({self._task}, timeout=RECALL_S)
        self._task.cancel()

    async def _poll_forever(self) -> None:
        backoff_s = FIRST_BACKOFF_S
        try:
            while self._ahead is not None or not self._session.draining:
                try:
                    await self._poll_once()
                    backoff_s, self.failing = FIRST_BACKOFF_S, False
                except (SessionEnded, Refused) as error:
                    log.warning("poll.refused", error=str(error))
                    return
                except Exception as error:
                    # Running attempts continue, whether the api is down or this worker has a bug.
                    expected, self.failing = isinstance(error, ApiUnavailable), True
                    log.warning("poll.failed", error=repr(error), retry_s=round(backoff_s, 1), exc_info=not expected)
                    await asyncio.sleep(random.uniform(backoff_s / 2, backoff_s))
                    backoff_s = min(backoff_s * 2, LONGEST_BACKOFF_S)
        finally:
            if self._ahead is not None:
                self._ahead.cancel()

    async def _poll_once(self) -> None:
        answer = await self._next_answer()
        if answer is None:
            return
        self._slots.cancel(answer.cancels)
        self._slots.preempt(answer.preempts)
        taken = self._attempts.take(answer)
        if len(taken) >= LARGE_ANSWER and not self._session.draining and (free := self._slots.free):
            self._ahead = asyncio.create_task(self._request(free))
        await self._attempts.begin(taken)

    async def _next_answer(self) -> PollAnswer | None:
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            return await ahead
        if not (free := self._slots.free):
            return await self._poll_while_full()
        if self._slots.busy > MANY_RUNNING and self._slots.busy > 10 * free:
            await asyncio.sleep(GATHER_S)
        return await self._request(max(free, self._slots.free))

    async def _request(self, free: int) -> PollAnswer:
        """Ask for work. Of very many free slots only half are offered, so that the next poll can be sent ahead."""
        offered = min(MOST_OFFERED, free if free < 2 * LARGE_ANSWER else free // 2)
        wait_s = BUSY_POLL_S if self._slots.busy else POLL_S
        self._open = True
        try:
            return await self._poll(free=offered, wait_s=wait_s, resources=self._slots.remaining_resources())
        finally:
            self._open = False

    async def _poll_while_full(self) -> PollAnswer | None:
        """Wait for a free slot; after a moment poll for cancellations and preemptions meanwhile."""
        self._slots.freed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._slots.freed.wait(), FULL_S)
            return None
        freed = asyncio.create_task(self._slots.freed.wait())
        poll = asyncio.create_task(self._poll(free=0, wait_s=POLL_S))
        try:
            await asyncio.wait({freed, poll}, return_when=asyncio.FIRST_COMPLETED)
            return poll.result() if poll.done() else None
        finally:
            freed.cancel()
            poll.cancel()  # with free=0 it can't bring work

    def refresh(self) -> None:
        """Have the open poll answered: it states less capacity than is free now, and the next one states it all."""
        if self._open and not self._session.draining:
            self._open = False
            self._tasks.spawn(self._replace_open_poll(), "refresh poll")

    async def _replace_open_poll(self) -> None:
        with contextlib.suppress(ApiUnavailable, SessionEnded, Refused):
            answer = await self._poll(free=0, wait_s=0)
            self._slots.cancel(answer.cancels)
            self._slots.preempt(answer.preempts)

    async def _poll(self, *, free: int, wait_s: float, resources: dict[str, int] | None = None) -> PollAnswer:
        poll = wire.Poll(session_id=self._session.session_id, free=free, wait_s=wait_s, resources=resources)
        return await self._api.poll(poll)
