"""Submits any number of executions: batches of up to 1,000, several in flight, results in the order of the items."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from uuid import UUID

from mainspring import wire
from mainspring.domain.errors import MainspringError, TooLarge
from mainspring.http_client import finish

BATCH = 1000
IN_FLIGHT = 4
SHOWN = 5
_POINTER = re.compile(r"/items/(\d+)(/.*)?")

Submit = Callable[[list[wire.BatchItem]], Awaitable[wire.BatchAnswer]]


class SubmitFailed(MainspringError):
    """Some items were not submitted; the others were.

    `execution_ids` has an id or None for each item, `errors` the reason for each index without an id.
    """

    code = "submit_failed"

    def __init__(self, execution_ids: list[UUID | None], errors: dict[int, str]) -> None:
        shown = [f"item {index}: {text}" for index, text in sorted(errors.items())[:SHOWN]]
        if len(errors) > SHOWN:
            shown.append(f"and {len(errors) - SHOWN:,} more")
        super().__init__(f"{len(errors):,} of {len(execution_ids):,} items were not submitted: {'; '.join(shown)}")
        self.execution_ids = execution_ids
        self.errors = errors


class Submission:
    """The state that the senders of one `submit_many` share. After a failed request no further items are sent."""

    def __init__(self, items: Iterable[wire.BatchItem]) -> None:
        self._items = iter(items)
        self._lock = threading.Lock()
        self._ids: list[UUID | None] = []
        self._errors: dict[int, str] = {}
        self._cause: BaseException | None = None

    async def send_all(self, submit: Submit) -> None:
        """Send batches until none are left. Several tasks or threads may do so together."""
        try:
            while (found := self._next_batch()) is not None:
                await self._send(submit, *found)
        except BaseException as error:
            self._cause = self._cause or error
            raise

    def result(self) -> list[UUID]:
        """Return the ids in the order of the items, or raise `SubmitFailed`; the cause, if nothing was submitted."""
        if self._cause is not None and not isinstance(self._cause, MainspringError):
            raise self._cause
        if self._errors:
            if isinstance(self._cause, MainspringError) and not any(self._ids):
                raise self._cause
            raise SubmitFailed(self._ids, self._errors) from self._cause
        return [found for found in self._ids if found is not None]

    def _next_batch(self) -> tuple[int, list[wire.BatchItem]] | None:
        with self._lock:
            if self._cause is not None:
                return None
            start, batch = len(self._ids), list(islice(self._items, BATCH))
            self._ids += [None] * len(batch)
        return (start, batch) if batch else None

    async def _send(self, submit: Submit, start: int, batch: list[wire.BatchItem]) -> None:
        try:
            answer = await submit(batch)
        except TooLarge as error:
            if len(batch) == 1:
                self._errors[start] = error.message
                return
            half = len(batch) // 2
            await self._send(submit, start, batch[:half])
            await self._send(submit, start + half, batch[half:])
        except MainspringError as error:
            self._cause = self._cause or error
            self._reject(start, len(batch), error)
        else:
            for index, item in enumerate(answer.items, start):
                self._ids[index] = item.execution_id
                if item.execution_id is None:
                    self._errors[index] = item.error or f"the server responded with {item.status}"

    def _reject(self, start: int, count: int, error: MainspringError) -> None:
        """Record why a whole request failed, for its invalid items by their own problem."""
        own = {}
        for problem in error.problems:
            if (found := _POINTER.fullmatch(problem.pointer)) and int(found[1]) < count:
                own[start + int(found[1])] = str(replace(problem, pointer=found[2] or ""))
        other = "another item of the same request is invalid" if own else str(error)
        for index in range(start, start + count):
            self._errors[index] = own.get(index, other)


async def send_in_tasks(submission: Submission, submit: Submit, in_flight: int) -> None:
    await asyncio.gather(*(submission.send_all(submit) for _ in range(in_flight)), return_exceptions=True)


def send_in_threads(submission: Submission, submit: Submit, in_flight: int) -> None:
    def send() -> None:
        with suppress(Exception):  # `result` raises it
            finish(submission.send_all(submit))

    threads = [threading.Thread(target=send, name="mainspring-submit") for _ in range(in_flight - 1)]
    for thread in threads:
        thread.start()
    try:
        finish(submission.send_all(submit))
    finally:
        for thread in threads:
            thread.join()
