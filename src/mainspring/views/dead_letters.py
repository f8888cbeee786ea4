"""Dead letters, and their groups by job and fingerprint."""

from __future__ import annotations

import re
from uuid import UUID

from mainspring import wire
from mainspring.domain.dead_letter import DEAD_LETTER_STATES
from mainspring.domain.errors import Conflict, Invalid, NotFound
from mainspring.store import dead_letters
from mainspring.store.db import Connection, Database
from mainspring.store.dead_letters import BEFORE_FIRST_GROUP
from mainspring.views import refs

COUNT_TO = 10_000
"""A group is counted up to here."""
_HEX = re.compile(r"[0-9a-f]{4,32}\Z")
_GROUP = re.compile(r"([0-9a-f-]{36})\.([0-9a-f]{1,64})\Z")


async def find(database: Database, ref: str, *, tenant: int) -> UUID:
    """A dead letter's id, from the whole id, a unique prefix, or @last for the one that ended last."""
    digits = ref.lower().replace("-", "")
    async with database.connection() as connection:
        if ref == "@last":
            latest = await dead_letters.latest_dead_letter(connection, tenant=tenant)
            if latest is None:
                raise NotFound("@last: there are no dead letters")
            return latest
        found = (
            await dead_letters.dead_letter_prefix(connection, tenant=tenant, prefix=digits)
            if _HEX.match(digits)
            else []
        )
    if not found:
        raise NotFound(f"there is no dead letter {ref!r}")
    if len(found) > 1:
        raise Conflict(f"several dead letters begin with {ref!r}; give more digits", code="ambiguous")
    return found[0]


async def get(database: Database, dead_letter_id: UUID, *, tenant: int) -> wire.DeadLetter:
    async with database.connection() as connection:
        return await read(connection, dead_letter_id, tenant=tenant)


async def read(connection: Connection, dead_letter_id: UUID, *, tenant: int) -> wire.DeadLetter:
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
    """Dead letters, newest fire first."""
    refs.check_limit(limit)
    for state in states or ():
        if state not in DEAD_LETTER_STATES:
            raise Invalid(f"{state!r} is not a state of a dead letter; use one of {', '.join(DEAD_LETTER_STATES)}")
    before = refs.parse_cursor(cursor)
    async with database.connection() as connection:
        job_ids = None if job is None else await refs.known_jobs(connection, job, tenant=tenant)
        rows = await dead_letters.list_dead_letters(
            connection,
            tenant=tenant,
            before=before,
            limit=limit + 1,
            job_ids=job_ids,
            fingerprint=fingerprint,
            states=states,
        )
    page = rows[:limit]
    return wire.Page(items=page, next_cursor=str(page[-1].dead_letter_id) if len(rows) > limit else None)


async def list_groups(
    database: Database, *, tenant: int, cursor: str | None = None, limit: int = 100
) -> wire.Page[wire.DeadLetterGroup]:
    """Open dead letters by job and fingerprint; within a page, the most recent first."""
    refs.check_limit(limit)
    after = BEFORE_FIRST_GROUP
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
