"""Dead letters and two operators."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.domain.retry import RetryPolicy
from mainspring.intake import dead_letters, replays
from mainspring.views import dead_letters as dead_letter_views
from tests.support.settling import TENANT, SettlingBench

ANN, BEN = "ann", "ben"


class DeadLetterBench(SettlingBench):
    """A bench with people who work on what has failed."""

    async def failing(self, **spec: Any) -> UUID:
        return await self.job(retries=RetryPolicy(max=0), **spec)

    async def letter(self, job_id: UUID, error: str = "no") -> UUID:
        execution = await self.submit(job_id)
        await self.settle_one("failed", error=error)
        return execution

    async def settle_one(self, outcome: Any, **more: Any) -> UUID:
        """Claims the next execution and ends it."""
        session = await self.session()
        (row,) = await self.claim(session)
        assert await self.end(row["execution_id"], session, outcome, **more)
        return UUID(str(row["execution_id"]))

    async def get(self, letter: UUID) -> wire.DeadLetter:
        return await dead_letter_views.get(self.database, letter, tenant=TENANT)

    async def replay(self, letter: UUID, by: str = ANN, **more: Any) -> wire.Replay:
        return await replays.replay_one(self.database, letter, wire.ReplayOne(**more), tenant=TENANT, by=by)

    async def replay_many(self, by: str = ANN, **more: Any) -> wire.Replay:
        return await replays.replay_many(self.database, wire.ReplayMany(**more), tenant=TENANT, by=by)

    async def claim_letter(self, letter: UUID, by: str, for_: str = "10m") -> wire.DeadLetter:
        return await dead_letters.claim_one(self.database, letter, for_, tenant=TENANT, by=by)

    async def follow(self) -> bool:
        return await replays.follow_replays(self.database)

    async def states(self, *letters: UUID) -> list[str]:
        return [(await self.get(letter)).state for letter in letters]
