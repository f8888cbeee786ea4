"""Logs of executions, forwards from a position and backwards from the end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from uuid import UUID

from mainspring import wire
from mainspring.domain.errors import invalid
from mainspring.domain.execution import LIVE
from mainspring.store import executions, logs
from mainspring.store.db import Connection, Database
from mainspring.views import executions as executions_view

CHUNKS_PER_PAGE = 200
TAIL_BYTES = 96_000
"""How much of a log is rendered at once."""
PAGE_BYTES = 1_000_000
LogRows = Sequence[logs.LogRow]
_START = (0, -1)
_END = (32_767, 2_147_483_647)
_POSITION = re.compile(r"(\d{1,4})\.(-1|\d{1,9})\Z", re.ASCII)


async def read_logs(
    database: Database, execution_id: UUID, *, tenant: int, place: str | None = None, size: int = PAGE_BYTES
) -> wire.Logs:
    """Log chunks after a position, about `size` bytes. `complete` when the execution has ended and all was read."""
    after = parse_place(place)
    async with database.connection() as connection:
        # State before chunks: output is written before the end, so an ended execution has all of it.
        found = await executions.execution_by_id(connection, tenant=tenant, execution_id=execution_id)
        rows: LogRows = await logs.read_logs(
            connection, tenant=tenant, execution_id=execution_id, after=after, limit=CHUNKS_PER_PAGE
        )
        retry = None if found is None else await _retry(connection, found, tenant=tenant)
    if found is None:
        found = await executions_view.get(database, execution_id, tenant=tenant)
    if not rows and found.state not in LIVE and database.archive is not None:
        archived = await database.archive.output(database, execution_id, tenant=tenant)
        rows = [row for row in archived if row[:2] > after][:CHUNKS_PER_PAGE]
    page = _first_bytes(rows, size)
    last = (page[-1][0], page[-1][1]) if page else after
    complete = found.state not in LIVE and len(rows) < CHUNKS_PER_PAGE and len(page) == len(rows)
    return wire.Logs(
        chunks=_chunks(page),
        place=f"{last[0]}.{last[1]}",
        complete=complete,
        progress=found.progress,
        retry=retry if len(page) == len(rows) else None,
    )


async def _retry(connection: Connection, found: wire.Execution, *, tenant: int) -> wire.Retry | None:
    """The attempt after which an execution waits; None if it does not wait for another one."""
    if found.state != "waiting" or not found.attempt:
        return None
    attempts = await executions.list_attempts(connection, tenant=tenant, execution_id=found.execution_id)
    if not attempts:
        return None
    last = attempts[-1]
    return wire.Retry(
        attempt=last.attempt,
        outcome=last.outcome,
        exit_code=last.exit_code,
        error=last.error,
        due_at=found.due_at,
    )


async def read_logs_before(
    database: Database, execution_id: UUID, *, tenant: int, before: str | None = None, size: int = TAIL_BYTES
) -> tuple[wire.Logs, bool]:
    """Log chunks before a position, or the last ones, in order; and whether there are earlier ones."""
    position = parse_place(before) if before else _END
    async with database.connection() as connection:
        found = await executions.execution_by_id(connection, tenant=tenant, execution_id=execution_id)
        rows: LogRows = await logs.read_logs_before(
            connection,
            tenant=tenant,
            execution_id=execution_id,
            before=position,
            limit=CHUNKS_PER_PAGE,
            size=size,
        )
        first = (rows[-1][0], rows[-1][1]) if rows else _START
        more = bool(rows) and bool(
            await logs.read_logs_before(
                connection, tenant=tenant, execution_id=execution_id, before=first, limit=1, size=1
            )
        )
    if found is None:
        found = await executions_view.get(database, execution_id, tenant=tenant)
    if not rows and found.state not in LIVE and database.archive is not None:
        archived = await database.archive.output(database, execution_id, tenant=tenant)
        rows, more = _last_bytes([row for row in archived if row[:2] < position], size)
    last = f"{rows[0][0]}.{rows[0][1]}" if rows else "0.-1"
    complete = found.state not in LIVE and not before
    return wire.Logs(chunks=_chunks(rows[::-1]), place=last, complete=complete, progress=found.progress), more


def parse_place(place: str | None) -> tuple[int, int]:
    """Attempt and sequence number of a position such as `1.17`."""
    if not place:
        return _START
    if (found := _POSITION.match(place)) is not None:
        return (int(found[1]), int(found[2]))
    raise invalid("/place", "invalid log position", hint="pass `place` of the previous answer unchanged")


def _first_bytes(rows: LogRows, size: int) -> LogRows:
    """The first rows with about `size` bytes, at least one."""
    for count, (_, _, _, data, _) in enumerate(rows):
        size -= len(data)
        if size < 0:
            return rows[: max(1, count)]
    return rows


def _last_bytes(rows: LogRows, size: int) -> tuple[LogRows, bool]:
    """The last rows with about `size` bytes, newest first, and whether there are earlier ones."""
    count = 0
    while count < min(len(rows), CHUNKS_PER_PAGE) and size > 0:
        count += 1
        size -= len(rows[-count][3])
    return rows[::-1][:count], count < len(rows)


def _chunks(rows: LogRows) -> list[wire.LogChunk]:
    return [
        wire.LogChunk(attempt=attempt, seq=seq, stream=stream, text=data.decode("utf-8", "replace"), received_at=at)
        for attempt, seq, stream, data, at in rows
    ]
