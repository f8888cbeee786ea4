"""Claim, release, edit and dismiss dead letters. Replaying is in intake/replays.py."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.clock import instant
from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import Conflict, invalid
from mainspring.intake.validate.params import check_params
from mainspring.store import audit, dead_letters
from mainspring.store.audit import AuditSubject
from mainspring.store.db import Connection, Database, database_now_ms
from mainspring.store.dead_letters import DeadLetterFilter
from mainspring.views import dead_letters as dead_letter_views
from mainspring.views import refs
from mainspring.views.dead_letters import read

MAX_CLAIM_S = 86_400.0


async def resolve_choice(database: Database, choice: wire.DeadLetterChoice, *, tenant: int) -> DeadLetterFilter:
    """Resolve the job of a choice. An empty choice, which would mean every dead letter, is refused."""
    if choice.ids is None and choice.job is None and choice.fingerprint is None:
        raise invalid("/job", "this would select every open dead letter", hint="give ids, a job or a fingerprint")
    job_ids = await _jobs_of(database, choice.job, tenant=tenant)
    return DeadLetterFilter(choice.ids, job_ids, choice.fingerprint, choice.limit)


async def _jobs_of(database: Database, job: str | None, *, tenant: int) -> list[UUID] | None:
    """The jobs that a name stands for, also deleted ones: their dead letters stay."""
    if job is None:
        return None
    async with database.connection() as connection:
        return await refs.known_jobs(connection, job, tenant=tenant)


async def claim(database: Database, request: wire.DeadLetterClaim, *, tenant: int, by: str) -> list[wire.DeadLetter]:
    """Claim the next open, unclaimed dead letters for `by` until the claim expires."""
    for_s = _claim_s(request.for_)
    job_ids = await _jobs_of(database, request.job, tenant=tenant)
    choice = DeadLetterFilter(request.ids, job_ids, request.fingerprint, request.limit)
    async with database.transaction() as connection:
        ids = await dead_letters.claim_dead_letters(connection, tenant=tenant, by=by, choice=choice, for_s=for_s)
        letters = [await read(connection, dead_letter_id, tenant=tenant) for dead_letter_id in sorted(ids)]
        await _record(connection, "dead_letter.claim", letters, tenant=tenant, by=by, for_s=for_s)
        return letters


async def claim_one(
    database: Database, dead_letter_id: UUID, for_: str | int | float, *, tenant: int, by: str
) -> wire.DeadLetter:
    """Claim one dead letter for `by`; the error names the user who has claimed it."""
    for_s = _claim_s(for_)
    async with database.transaction() as connection:
        claimed = await dead_letters.claim_dead_letters(
            connection, tenant=tenant, by=by, choice=DeadLetterFilter(ids=[dead_letter_id], limit=1), for_s=for_s
        )
        letter = await read(connection, dead_letter_id, tenant=tenant)
        if not claimed:
            raise refusal(letter, by, instant(int(await database_now_ms(connection))))
        await _record(connection, "dead_letter.claim", [letter], tenant=tenant, by=by, for_s=for_s)
        return letter


async def _record(
    connection: Connection, action: str, letters: Sequence[wire.DeadLetter], *, tenant: int, by: str, **details: Any
) -> None:
    entries = [AuditSubject(str(letter.dead_letter_id), letter.job, details or None) for letter in letters]
    await audit.record_all(connection, action, entries, tenant=tenant, by=by)


async def release(database: Database, dead_letter_id: UUID, *, tenant: int, by: str) -> wire.DeadLetter:
    """Release a claim before it expires; does nothing if `by` has not claimed it."""
    async with database.transaction() as connection:
        done = await dead_letters.release_dead_letter(connection, tenant=tenant, dead_letter_id=dead_letter_id, by=by)
        letter = await read(connection, dead_letter_id, tenant=tenant)
        if done:
            await _record(connection, "dead_letter.release", [letter], tenant=tenant, by=by)
        return letter


async def edit(
    database: Database, dead_letter_id: UUID, change: wire.DeadLetterEdit, *, tenant: int, by: str
) -> wire.DeadLetter:
    """Edit the note, or the parameters of the replay, which are checked against the current job."""
    letter = await dead_letter_views.get(database, dead_letter_id, tenant=tenant)
    if change.params is not None:
        row = await refs.job_row(database, str(letter.job_id), tenant=tenant)
        check_params(row.spec, change.params)
    async with database.transaction() as connection:
        done = await dead_letters.edit_dead_letter(
            connection, tenant=tenant, dead_letter_id=dead_letter_id, by=by, edit=change
        )
        letter = await read(connection, dead_letter_id, tenant=tenant)
        if not done:
            raise refusal(letter, by, instant(int(await database_now_ms(connection))))
        fields = [name for name in ("note", "params") if getattr(change, name) is not None]
        await _record(connection, "dead_letter.edit", [letter], tenant=tenant, by=by, fields=fields)
        return letter


async def dismiss(database: Database, dead_letter_id: UUID, *, reason: str, tenant: int, by: str) -> wire.DeadLetter:
    """Close a dead letter without a replay. Idempotent."""
    reason = _reason(reason)
    async with database.transaction() as connection:
        held = await dead_letters.lock_dead_letters(
            connection, tenant=tenant, by=by, choice=DeadLetterFilter(ids=[dead_letter_id], limit=1)
        )
        if held:
            await _dismiss(connection, [dead_letter_id], reason, tenant=tenant, by=by)
        letter = await read(connection, dead_letter_id, tenant=tenant)
        if letter.state != "dismissed":
            raise refusal(letter, by, instant(int(await database_now_ms(connection))))
        return letter


async def dismiss_many(database: Database, request: wire.DismissMany, *, tenant: int, by: str) -> wire.Dismissed:
    """Dismiss all that match, except those claimed by other users."""
    reason = _reason(request.reason)
    choice = await resolve_choice(database, request, tenant=tenant)
    async with database.transaction() as connection:
        held = await dead_letters.lock_dead_letters(connection, tenant=tenant, by=by, choice=choice)
        if held and not request.dry_run:
            ids = [letter.dead_letter_id for letter in held]
            await _dismiss(connection, ids, reason, tenant=tenant, by=by)
    return wire.Dismissed(dismissed=len(held), dry_run=request.dry_run)


async def _dismiss(connection: Connection, ids: Sequence[UUID], reason: str, *, tenant: int, by: str) -> None:
    done = await dead_letters.dismiss_dead_letters(connection, tenant=tenant, ids=ids, by=by, reason=reason)
    done += await dead_letters.close_attached(
        connection, tenant=tenant, ids=done, state="dismissed", by=by, reason=reason
    )
    entries = [AuditSubject(str(dead_letter_id)) for dead_letter_id in done]
    await audit.record_all(connection, "dead_letter.dismiss", entries, tenant=tenant, by=by, reason=reason)


def refusal(letter: wire.DeadLetter, by: str, now: datetime) -> Conflict:
    """Why it can't be changed: another user has claimed it, or it is not open."""
    until = letter.claimed_until
    if letter.state == "open" and until is not None and letter.claimed_by != by and until > now:
        return Conflict(f"{letter.claimed_by} has claimed it until {until:%H:%M:%S} UTC", code="claimed")
    return Conflict(f"the dead letter is {letter.state}, not open", code="not_open")


def _claim_s(text: str | int | float) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise invalid("/for", str(error), hint="seconds, 90s, 10m or 1h") from None
    if not 1 <= seconds <= MAX_CLAIM_S:
        raise invalid("/for", f"{text!r} is out of range", hint="from 1 second to 1 day")
    return seconds


def _reason(text: str) -> str:
    if not text.strip():
        raise invalid("/reason", "a reason is required", hint="say why it needs no replay")
    return text.strip()
