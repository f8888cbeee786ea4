"""Over the counter: what is submitted while a fitting worker waits right here need not stand in the queue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class IdleWorker:
    """See ports.IdleWorker."""

    session_id: UUID
    hand_over: Callable[[list[Any]], Awaitable[None]]

    async def assign(self, row: Any) -> None:
        try:
            await self.hand_over([row])
        except Exception:
            # It is written, so whoever submitted it must not hear of this; the worker's next heartbeat gives it back.
            log.exception("an execution could not be handed over", execution=str(row["execution_id"]))
