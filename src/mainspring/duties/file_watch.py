"""Leader duty: look for files that have arrived, and start what their triggers say.

One process looks at a time; the database decides which version of a file has started an execution, so a process that
lost the lead midway does no harm. Each look is bounded in time, names and starts; the next one continues.
"""

from __future__ import annotations

import asyncio

import structlog

from mainspring import ports
from mainspring.domain.errors import clipped
from mainspring.domain.file_pattern import FilePattern
from mainspring.domain.watch import FIRST_TENANT, CannotLook, FilesSource, Look, WatchRoot, root_of
from mainspring.intake.triggers.files import take
from mainspring.store import trigger_files
from mainspring.store.db import AWAY, Database
from mainspring.store.trigger_files import WatchRow
from mainspring.telemetry import metrics

log = structlog.get_logger()

LOOKS_PER_ROUND = 100
CONCURRENT_LOOKS = 4
LOOK_TIMEOUT_S = 10.0
MAX_PROBLEM_CHARS = 500


class FileWatch:
    """Looks wherever a trigger of kind `files` is due, below the roots that the operator allows."""

    def __init__(self, database: Database, places: ports.FilePlaces, roots: tuple[WatchRoot, ...]) -> None:
        self._database = database
        self._places = places
        self._roots = roots
        self._slots = asyncio.Semaphore(CONCURRENT_LOOKS)

    async def look_all(self) -> float | None:
        """Look wherever a look is due; return the seconds until the next one, None if nothing is watched."""
        async with self._database.connection() as connection:
            due = await trigger_files.due_watches(connection, limit=LOOKS_PER_ROUND)
        if due:
            await asyncio.gather(*(self._look(watch) for watch in due))
        async with self._database.connection() as connection:
            return await trigger_files.next_look_s(connection)

    async def _look(self, watch: WatchRow) -> None:
        async with self._slots:
            try:
                found = await self._found(watch)
                await take(self._database, watch, found)
                problem = found.problem
            except CannotLook as error:
                problem = str(error)
                await self._fail(watch, problem)
            except AWAY:
                raise
            except Exception:  # the look is repeated, and must not delay others
                log.exception("trigger.look_failed", trigger=watch.trigger.name)
                problem = "an internal error, which the log of the scheduler describes"
                await self._fail(watch, problem)
        metrics.TRIGGER_LOOKS.labels("failed" if problem else "done").inc()
        if problem and problem != watch.error:
            log.warning("trigger.failing", trigger=watch.trigger.name, tenant=watch.trigger.tenant, problem=problem)
        elif watch.error is not None and problem is None:
            log.info("trigger.recovered", trigger=watch.trigger.name, tenant=watch.trigger.tenant)

    async def _found(self, watch: WatchRow) -> Look:
        source = _source(watch)
        root = root_of(
            self._roots, source.place, tenant=watch.tenant_name, is_first=watch.trigger.tenant == FIRST_TENANT
        )
        return await self._places.look(
            source.place,
            root=root,
            pattern=FilePattern(source.pattern),
            after=watch.after_path,
            within_s=LOOK_TIMEOUT_S,
        )

    async def _fail(self, watch: WatchRow, problem: str) -> None:
        async with self._database.connection() as connection:
            await trigger_files.fail_look(
                connection, watch, wait_s=_source(watch).interval_s, problem=clipped(problem, MAX_PROBLEM_CHARS)
            )


def _source(watch: WatchRow) -> FilesSource:
    source = watch.trigger.spec.source
    assert isinstance(source, FilesSource)
    return source
