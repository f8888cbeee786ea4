"""Dead letters, as people work through them: look, claim, note, edit, dismiss. Replaying is in intake/replays.py."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.clock import instant
from mainspring.domain.dead_letter import DEAD_LETTER_STATES
from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import Conflict, Invalid, NotFound, invalid
from mainspring.intake.validate.params import check_params
from mainspring.store import audit, dead_letters
from mainspring.store.audit import Entry
from mainspring.store.db import Connection, Database, database_now_ms
from mainspring.store.dead_letters import NEXT, DeadLetterFilter
from mainspring.views import refs

COUNT_TO = 10_000
MOST_CLAIM_S = 86_400.0
_HEX = re.compile(r"[0-9a-f]{4,32}\Z")
_GROUP = re.compile(r"([0-9a-f-]{36})\.([0-9a-f]{1,64})\Z")


async def find(database: Database, ref: str, *, tenant: int) -> UUID:
    """A dead letter by its id, or by the beginning of it if that is enough."""
    digits = ref.lower().replace("-", "")
    async with database.connection() as connection:
        found = (
            await dead_letters.dead_letter_prefix(connection, tenant=tenant, prefix=digits)
            if _HEX.match(digits)
            else []
        )
    if not found:
        raise NotFound(f"there is no dead letter {ref!r}")
    if len(found) > 1:
        raise Conflict(f"several dead letters begin with {ref!r}: give more of the id", code="ambiguous")
    return found[0]


async def get(database: Database, dead_letter_id: UUID, *, tenant: int) -> wire.DeadLetter:
    async with database.connection() as connection:
        return await found_in(connection, dead_letter_id, tenant=tenant)


async def found_in(connection: Connection, dead_letter_id: UUID, *, tenant: int) -> wire.DeadLetter:
    found = await dead_letters.dead_letter_by_id(connection, tenant=tenant, dead_letter_id=dead_letter_id)
    if found is None:
        raise NotFound(f"there is no dead letter {dead_letter_id}")
    return found


async def list_dead_letters(
    database: Database,
    *,
    tenant: int,
    cursor: str | None = None,
    limit: int = 50,
    job: str | None = None,
    fingerprint: str | None = None,
    states: list[str] | None = None,
) -> wire.Page[wire.DeadLetter]:
    """Newest fire first."""
    refs.check_limit(limit)
    for state in states or ():
        if state not in DEAD_LETTER_STATES:
            raise Invalid(f"{state!r} is not a state of a dead letter; known: {', '.join(DEAD_LETTER_STATES)}")
    before = refs.parse_cursor(cursor)
    job_id = None if job is None else (await refs.job_row(database, job, tenant=tenant)).job_id
    async with database.connection() as connection:
        rows = await dead_letters.list_dead_letters(
            connection,
            tenant=tenant,
            before=before,
            limit=limit + 1,
            job_id=job_id,
            fingerprint=fingerprint,
            states=states,
        )
    page = rows[:limit]
    return wire.Page(items=page, next_cursor=str(page[-1].dead_letter_id) if len(rows) > limit else None)


async def list_groups(
    database: Database, *, tenant: int, cursor: str | None = None, limit: int = 100
) -> wire.Page[wire.DeadLetterGroup]:
    """What is open, by job and fingerprint; within a page, the newest trouble first."""
    refs.check_limit(limit)
    after = NEXT
    if cursor:
        place = _GROUP.match(cursor)
        if place is None or not refs.is_id(place[1]):
            raise refs.bad_cursor()
        after = UUID(place[1]), place[2]
    async with database.connection() as connection:
        found = await dead_letters.group_dead_letters(
            connection, tenant=tenant, after=after, limit=limit + 1, count_to=COUNT_TO
        )
    page = found[:limit]
    onward = f"{page[-1].job_id}.{page[-1].fingerprint}" if len(found) > limit else None
    return wire.Page(items=sorted(page, key=lambda g: g.last_at, reverse=True), next_cursor=onward)


async def chosen(database: Database, choice: wire.DeadLetterChoice, *, tenant: int) -> DeadLetterFilter:
    """A choice by name as one by id. Saying nothing at all would mean everything, so it must be said."""
    if choice.ids is None and choice.job is None and choice.fingerprint is None:
        raise invalid("/job", "this would be every open dead letter", hint="name ids, a job or a fingerprint")
    job_id = None if choice.job is None else (await refs.job_row(database, choice.job, tenant=tenant)).job_id
    return DeadLetterFilter(choice.ids, job_id, choice.fingerprint, choice.limit)


async def claim(database: Database, request: wire.DeadLetterClaim, *, tenant: int, by: str) -> list[wire.DeadLetter]:
    """The next open ones that nobody has claimed, for `by` alone until the time is over."""
    for_s = _claim_s(request.for_)
    job_id = None if request.job is None else (await refs.job_row(database, request.job, tenant=tenant)).job_id
    choice = DeadLetterFilter(request.ids, job_id, request.fingerprint, request.limit)
    async with database.transaction() as connection:
        ids = await dead_letters.claim_dead_letters(connection, tenant=tenant, by=by, choice=choice, for_s=for_s)
        letters = [await found_in(connection, dead_letter_id, tenant=tenant) for dead_letter_id in sorted(ids)]
        await _note(connection, "dead_letter.claim", letters, tenant=tenant, by=by, for_s=for_s)
        return letters


async def claim_one(
    database: Database, dead_letter_id: UUID, for_: str | int | float, *, tenant: int, by: str
) -> wire.DeadLetter:
    """For `by` alone; says who has it if somebody else does."""
    for_s = _claim_s(for_)
    async with database.transaction() as connection:
        claimed = await dead_letters.claim_dead_letters(
            connection, tenant=tenant, by=by, choice=DeadLetterFilter(ids=[dead_letter_id], limit=1), for_s=for_s
        )
        letter = await found_in(connection, dead_letter_id, tenant=tenant)
        if not claimed:
            raise refusal(letter, by, instant(int(await database_now_ms(connection))))
        await _note(connection, "dead_letter.claim", [letter], tenant=tenant, by=by, for_s=for_s)
        return letter


async def _note(
    connection: Connection, action: str, letters: Sequence[wire.DeadLetter], *, tenant: int, by: str, **details: Any
) -> None:
    entries = [Entry(str(letter.dead_letter_id), letter.job, details or None) for letter in letters]
    await audit.record_all(connection, action, entries, tenant=tenant, by=by)


async def release(database: Database, dead_letter_id: UUID, *, tenant: int, by: str) -> wire.DeadLetter:
    """Gives a claimed one back before the time is over; for one that `by` has not claimed, nothing changes."""
    async with database.transaction() as connection:
        done = await dead_letters.release_dead_letter(connection, tenant=tenant, dead_letter_id=dead_letter_id, by=by)
        letter = await found_in(connection, dead_letter_id, tenant=tenant)
        if done:
            await _note(connection, "dead_letter.release", [letter], tenant=tenant, by=by)
        return letter


async def edit(
    database: Database, dead_letter_id: UUID, change: wire.DeadLetterEdit, *, tenant: int, by: str
) -> wire.DeadLetter:
    """Writes a note, or the parameters of the replay; those are checked against the job as it is now."""
    letter = await get(database, dead_letter_id, tenant=tenant)
    if change.params is not None:
        row = await refs.job_row(database, str(letter.job_id), tenant=tenant)
        check_params(row.spec, change.params)
    async with database.transaction() as connection:
        done = await dead_letters.edit_dead_letter(
            connection, tenant=tenant, dead_letter_id=dead_letter_id, by=by, edit=change
        )
        letter = await found_in(connection, dead_letter_id, tenant=tenant)
        if not done:
            raise refusal(letter, by, instant(int(await database_now_ms(connection))))
        fields = [name for name in ("note", "params") if getattr(change, name) is not None]
        await _note(connection, "dead_letter.edit", [letter], tenant=tenant, by=by, fields=fields)
        return letter


async def dismiss(database: Database, dead_letter_id: UUID, *, reason: str, tenant: int, by: str) -> wire.DeadLetter:
    """Nothing more is to be done about it. To dismiss it again changes nothing."""
    reason = _reason(reason)
    async with database.transaction() as connection:
        held = await dead_letters.lock_dead_letters(
            connection, tenant=tenant, by=by, choice=DeadLetterFilter(ids=[dead_letter_id], limit=1)
        )
        if held:
            await _dismiss(connection, [dead_letter_id], reason, tenant=tenant, by=by)
        letter = await found_in(connection, dead_letter_id, tenant=tenant)
        if letter.state != "dismissed":
            raise refusal(letter, by, instant(int(await database_now_ms(connection))))
        return letter


async def dismiss_many(database: Database, request: wire.DismissMany, *, tenant: int, by: str) -> wire.Dismissed:
    """What others have claimed is left alone."""
    reason = _reason(request.reason)
    choice = await chosen(database, request, tenant=tenant)
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
    entries = [Entry(str(dead_letter_id)) for dead_letter_id in done]
    await audit.record_all(connection, "dead_letter.dismiss", entries, tenant=tenant, by=by, reason=reason)


def refusal(letter: wire.DeadLetter, by: str, now: datetime) -> Conflict:
    """Why it can't be changed: somebody has it, or it is not open any more."""
    until = letter.claimed_until
    if letter.state == "open" and until is not None and letter.claimed_by != by and until > now:
        return Conflict(f"{letter.claimed_by} works on it until {until:%H:%M:%S} UTC", code="claimed")
    return Conflict(f"the dead letter is {letter.state}, not open", code="not_open")


def _claim_s(text: str | int | float) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise invalid("/for", str(error), hint="seconds, 90s, 10m or 1h") from None
    if not 1 <= seconds <= MOST_CLAIM_S:
        raise invalid("/for", f"{text!r} is too short or too long", hint="from one second to a day")
    return seconds


def _reason(text: str) -> str:
    if not text.strip():
        raise invalid("/reason", "a reason is needed", hint="say why nothing is to be done about it")
    return text.strip()
