"""Files: what a look found starts executions, one for each version of a file.

A look records what it found; a file that has arrived is decided in a transaction that locks its row, inserts the
execution and marks both. A process that dies at any point leaves the file as it was, and the next look decides it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice

from mainspring.clock import instant
from mainspring.domain.watch import (
    CannotLook,
    FileOutcome,
    FilesSource,
    FoundFile,
    KnownFile,
    Look,
    file_values,
    verdict,
)
from mainspring.intake.triggers.decide import Arrival, decide
from mainspring.intake.triggers.deliver import settle
from mainspring.store import trigger_files, triggers
from mainspring.store.db import Database, database_now_ms
from mainspring.store.trigger_files import WatchRow
from mainspring.store.triggers import TriggerRow
from mainspring.telemetry import metrics

MAX_STARTS = 100
"""Files that one look decides; the next look continues."""
MAX_REMEMBERED = 1_000_000
"""Files of a trigger; one that is gone counts for a week."""
SOON_S = 1.0
"""Time until the next look, if this one left something."""


@dataclass(frozen=True, slots=True)
class Sorted:
    """The files of a look by what is to be done: record them, decide them now, or look again in `wait_s`."""

    records: list[tuple[str, str, FileOutcome]]
    arrived: list[FoundFile]
    wait_s: float


async def take(database: Database, watch: WatchRow, look: Look) -> int:
    """Record a look and start what it leads to; return how many files were decided. Can be repeated."""
    source = watch.trigger.spec.source
    assert isinstance(source, FilesSource)
    found = await _recorded(database, watch, source, look)
    decided, is_held = 0, False
    for file in islice(found.arrived, MAX_STARTS):
        outcome = await _decide_one(database, watch.trigger, source, file)
        decided += outcome is not None
        if is_held := outcome == "paused":  # its job is paused, for the other files as well
            break
    await _end(database, watch, look, found, more=not is_held and len(found.arrived) > MAX_STARTS)
    return decided


async def _recorded(database: Database, watch: WatchRow, source: FilesSource, look: Look) -> Sorted:
    """Sort the files of a look, and record their new versions."""
    tenant, trigger_id = watch.trigger.tenant, watch.trigger.trigger_id
    paths = [file.path for file in look.files]
    async with database.connection() as connection:
        now_ms = await database_now_ms(connection)
        known = await trigger_files.known_files(connection, tenant=tenant, trigger_id=trigger_id, paths=paths)
        found = sort(watch, source, look.files, known, now_ms=now_ms)
        await trigger_files.renew_files(connection, tenant=tenant, trigger_id=trigger_id, paths=paths)
        if not found.records:
            return found
        if any(path not in known for path, _, _ in found.records) and await trigger_files.remembers_too_many(
            connection, tenant=tenant, trigger_id=trigger_id, most=MAX_REMEMBERED
        ):
            hint = "move processed files away, or narrow the pattern"
            raise CannotLook(f"{MAX_REMEMBERED:,} files have matched within a week: {hint}")
        await trigger_files.record_files(
            connection,
            tenant=tenant,
            trigger_id=trigger_id,
            trigger_version=watch.trigger.version,
            found=found.records,
        )
    return found


def sort(
    watch: WatchRow,
    source: FilesSource,
    files: Sequence[FoundFile],
    known: dict[str, KnownFile],
    *,
    now_ms: float,
) -> Sorted:
    """Compare what a look found with what is known. Files that have arrived are in the order of their changes."""
    now, wait_s = instant(now_ms), source.interval_s
    ignore_before = watch.since_at if watch.first_pass and source.existing == "ignore" else None
    records: list[tuple[str, str, FileOutcome]] = []
    arrived = []
    for file in files:
        before = known.get(file.path)
        what = verdict(
            file,
            before,
            source=source,
            trigger_version=watch.trigger.version,
            ignore_before=ignore_before,
            now=now,
        )
        if before is None or before.version != file.version:
            records.append((file.path, file.version, "ignored" if what == "existing" else "seen"))
        if what == "arrived":
            arrived.append(file)
        elif what == "new":
            wait_s = min(wait_s, source.settle_s)
        elif what == "settling" and before is not None:
            left = before.seen_at + timedelta(seconds=source.settle_s) - now
            wait_s = min(wait_s, left.total_seconds())
    return Sorted(records, sorted(arrived, key=lambda file: (file.modified_at, file.path)), max(SOON_S, wait_s))


async def _decide_one(
    database: Database, trigger: TriggerRow, source: FilesSource, file: FoundFile
) -> FileOutcome | None:
    """Decide one version of a file; None: another process has, or the trigger was edited or paused."""
    arrival = Arrival(f"{source.full_path(file.path)} {file.version}", file.path, {"file": file_values(source, file)})
    decision = await decide(trigger.spec, arrival)
    async with database.transaction() as connection:
        if not await trigger_files.lock_file(
            connection,
            tenant=trigger.tenant,
            trigger_id=trigger.trigger_id,
            path=file.path,
            version=file.version,
            trigger_version=trigger.version,
        ):
            return None
        recorded = await triggers.record_delivery(
            connection, tenant=trigger.tenant, trigger_id=trigger.trigger_id, key=arrival.key, event=arrival.event
        )
        assert recorded is not None, "the lock keeps the trigger"
        row, _ = recorded
        is_duplicate = row.outcome == "started"
        if not is_duplicate:
            row = await settle(connection, trigger, row, decision)
        assert row.outcome != "pending"
        await trigger_files.decide_file(
            connection,
            tenant=trigger.tenant,
            trigger_id=trigger.trigger_id,
            path=file.path,
            outcome=row.outcome,
            trigger_version=trigger.version,
        )
    metrics.TRIGGER_DELIVERIES.labels("files", "duplicate" if is_duplicate else row.outcome).inc()
    return row.outcome


async def _end(database: Database, watch: WatchRow, look: Look, found: Sorted, *, more: bool) -> None:
    """Record the look. With `more`, the next one begins where this one began."""
    wait_s = SOON_S if more or look.next_after is not None else found.wait_s
    async with database.connection() as connection:
        await trigger_files.end_look(
            connection,
            watch,
            wait_s=wait_s,
            after=watch.after_path if more else look.next_after,
            problem=look.problem,
            complete=not more and look.next_after is None and look.problem is None,
        )
