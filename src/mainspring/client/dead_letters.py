"""Client methods for dead letters."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring import wire
from mainspring.client.paths import Ref, path_of
from mainspring.client.transport import Connected, Params
from mainspring.domain.dead_letter import DeadLetterState

PATH = "/api/v1/dead-letters"


class DeadLetterMethods(Connected):
    async def dead_letters(
        self,
        *,
        job: str | None = None,
        fingerprint: str | None = None,
        state: Sequence[DeadLetterState] = (),
        limit: int | None = None,
        cursor: str | None = None,
    ) -> wire.Page[wire.DeadLetter]:
        """List executions that failed or were lost permanently, latest fire first."""
        params: Params = {
            "job": job,
            "fingerprint": fingerprint,
            "state": list(state),
            "limit": limit,
            "cursor": cursor,
        }
        return await self._transport.request(wire.Page[wire.DeadLetter], "GET", PATH, params=params)

    async def dead_letter_groups(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.DeadLetterGroup]:
        """List open dead letters grouped by job and error fingerprint."""
        params: Params = {"limit": limit, "cursor": cursor}
        path = PATH + ":groups"
        return await self._transport.request(wire.Page[wire.DeadLetterGroup], "GET", path, params=params)

    async def dead_letter(self, ref: Ref) -> wire.DeadLetter:
        return await self._transport.request(wire.DeadLetter, "GET", path_of("dead-letters", ref))

    async def claim_dead_letter(self, ref: Ref, *, for_: str | int | float = "10m") -> wire.DeadLetter:
        """Claim a dead letter: until the claim expires, other users cannot change it."""
        path, body = path_of("dead-letters", ref, "claim"), wire.DeadLetterClaimOne(for_=for_)
        return await self._transport.request(wire.DeadLetter, "POST", path, body=body)

    async def claim_dead_letters(self, request: wire.DeadLetterClaim | None = None) -> wire.Page[wire.DeadLetter]:
        """Claim the oldest unclaimed dead letters."""
        body = request or wire.DeadLetterClaim()
        return await self._transport.request(wire.Page[wire.DeadLetter], "POST", PATH + ":claim", body=body)

    async def release_dead_letter(self, ref: Ref) -> wire.DeadLetter:
        return await self._transport.request(wire.DeadLetter, "POST", path_of("dead-letters", ref, "release"))

    async def edit_dead_letter(self, ref: Ref, edit: wire.DeadLetterEdit) -> wire.DeadLetter:
        """Set the note, or the parameters for a replay."""
        return await self._transport.request(wire.DeadLetter, "PATCH", path_of("dead-letters", ref), body=edit)

    async def replay_dead_letter(self, ref: Ref, request: wire.ReplayOne | None = None) -> wire.Replay:
        """Replay a dead letter as an execution; repeated calls return the same one."""
        path, body = path_of("dead-letters", ref, "replay"), request or wire.ReplayOne()
        return await self._transport.request(wire.Replay, "POST", path, body=body, creates=True)

    async def replay_dead_letters(self, request: wire.ReplayMany) -> wire.Replay:
        """Replay many: at a rate, after a canary, or as a dry run."""
        return await self._transport.request(wire.Replay, "POST", PATH + ":replay", body=request, creates=True)

    async def dismiss_dead_letter(self, ref: Ref, reason: str) -> wire.DeadLetter:
        path, body = path_of("dead-letters", ref, "dismiss"), wire.Dismiss(reason=reason)
        return await self._transport.request(wire.DeadLetter, "POST", path, body=body)

    async def dismiss_dead_letters(self, request: wire.DismissMany) -> wire.Dismissed:
        return await self._transport.request(wire.Dismissed, "POST", PATH + ":dismiss", body=request)
