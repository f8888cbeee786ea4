"""Claims queued executions for waiting workers.

Most claims concern one line without special demands; that is one statement. Several lines, resource demands or
reserved capacity take three steps: peek, match, start. Limits add a transaction around them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from uuid import UUID

from mainspring.clock import Clock
from mainspring.dispatch import limits
from mainspring.dispatch.fairness import Shares
from mainspring.dispatch.limits import LimitBudgets
from mainspring.dispatch.lines import MIN_BATCH, KnownLines, Line, WorkerProfile
from mainspring.dispatch.match import FreeCapacity, LineCandidates, StartBudget, fill_order, match
from mainspring.dispatch.ready_heaps import ReadyHeaps
from mainspring.dispatch.reservation_cache import LOOK_AHEAD, ReservationCache, merge_parts
from mainspring.dispatch.settings import DispatchSettings
from mainspring.store import claims, queue_feed
from mainspring.store.claims import Claimed
from mainspring.store.db import Connection, Database
from mainspring.telemetry import metrics

MAX_BATCH = 1000
MAX_LINES = 200
MAX_WORKERS = 300

Workers = Callable[[WorkerProfile], Iterable[FreeCapacity]]
Serving = dict[Line, tuple[WorkerProfile, ...]]
"""Lines with the profiles of the workers that can take from them."""


@dataclass(slots=True)
class ClaimGroup:
    """Lines that compete for the same workers, claimed together."""

    lines: Serving
    profiles: set[WorkerProfile]


class Claimer:
    def __init__(
        self,
        database: Database,
        known: KnownLines,
        settings: DispatchSettings,
        reservations: ReservationCache,
        *,
        clock: Clock,
    ) -> None:
        self.shares = Shares()
        self.ready = ReadyHeaps()
        self.unserved: set[UUID] = set()  # matched sessions that got nothing in the last claim: ended, or too late
        self._capped: set[Line] = set()  # lines at a cap: no notification says when it has free slots again
        self._database = database
        self._known = known
        self._settings = settings
        self._reservations = reservations
        self._clock = clock

    def groups(
        self, profiles: Sequence[WorkerProfile], has_capacity: Callable[[WorkerProfile, Line], bool]
    ) -> list[ClaimGroup]:
        """Return what can be claimed now for workers of these profiles."""
        now = self._clock.monotonic()
        wanted: Serving = {}
        unserved: list[Line] = []
        for line in self._known.fresh:
            if line.at_limit or line.not_before > now or self._settings.of(line).paused:
                continue
            serving = tuple(p for p in profiles if line.served_by(p) and has_capacity(p, line))
            if serving:
                wanted[line] = serving
            else:
                unserved.append(line)
        if unserved or len(wanted) > 1:
            self._add_helpers(wanted, unserved, profiles, has_capacity)
        return _group_by_workers(wanted)

    def _add_helpers(
        self,
        wanted: Serving,
        unserved: list[Line],
        profiles: Sequence[WorkerProfile],
        has_capacity: Callable[[WorkerProfile, Line], bool],
    ) -> None:
        """Let workers whose own queues have nothing for them take from the queues they may help."""
        busy = {profile for serving in wanted.values() for profile in serving}
        idle = [profile for profile in profiles if profile not in busy]
        for line in [*wanted, *unserved] if idle else ():
            helping = tuple(
                p
                for p in idle
                if line.queue not in p.queues
                and self._settings.may_help(p, line)
                and line.runnable_by(p)
                and has_capacity(p, line)
            )
            if helping:
                wanted[line] = wanted.get(line, ()) + helping

    async def claim(self, group: ClaimGroup, workers: Workers) -> list[Claimed]:
        """Claim for one group. Lines that may have more executions stay fresh."""
        self.unserved = set()
        first, *others = group.lines
        if not others and first.demand.plain:
            found = list(islice(chain(*map(workers, group.profiles)), MAX_WORKERS))
            if not self._reservations or not any(worker.reserved for worker in found):
                return await self._claim_line(first, found)
        return await self._claim_matched(group, workers)

    def needs_only_slot(self, line: Line) -> bool:
        """Whether any free slot suffices, and no limit has to be counted."""
        return line.demand.plain and not line.limited and not self._settings.has_cap(line)

    async def _claim_line(self, line: Line, workers: list[FreeCapacity]) -> list[Claimed]:
        """Claim one line whose executions need nothing but a slot, with or without limits."""
        slot_order = fill_order(workers, line.batch, packs=self._settings.of(line).packs(line.demand))
        if not slot_order:
            return []
        if self.ready.has(line.line_id) and self.needs_only_slot(line):
            return await self._claim_named(line, workers, slot_order)
        # Before the claim: an execution queued while it runs makes the line fresh again.
        self._known.fresh.discard(line)
        budgets, freed = LimitBudgets(), line.freed
        try:
            async with self._database.hot() as connection:
                if self.needs_only_slot(line):
                    rows = await self._claim_slots(connection, line, workers, slot_order)
                else:
                    rows, slot_order, budgets = await self._claim_limited(connection, line, workers, slot_order)
        except BaseException:
            self._known.fresh.add(line)
            raise
        if len(workers) > 1:
            matched = {workers[n - 1].session_id for n in slot_order[: len(rows)]}
            self.unserved = matched.difference(row["session_id"] for row in rows)
        if rows and not self.unserved:
            line.advance(rows[-1]["rank"], rows[-1]["execution_id"])
        if rows:
            self.shares.charge(line.tenant, len(rows))
        if len(rows) == len(slot_order) or self.unserved:
            self._known.fresh.add(line)
            self._hold_back(line, budgets, freed)
        # About as many as last time: a thousand slots in the statement cost half a millisecond even if one is used.
        line.batch = min(MAX_BATCH, max(MIN_BATCH, 4 * len(rows)))
        return rows

    async def _claim_named(self, line: Line, workers: list[FreeCapacity], slot_order: list[int]) -> list[Claimed]:
        """Claim executions that the queue engine has named. The slow poll finds those that are lost here."""
        ids = self.ready.take(line.line_id, len(slot_order))
        async with self._database.hot() as connection:
            rows = await queue_feed.claim_ids(
                connection,
                tenant=line.tenant,
                line_id=line.line_id,
                execution_ids=ids,
                sessions=[worker.session_id for worker in workers],
                slot_order=slot_order,
            )
        metrics.QUEUE_RECORDS.labels("claimed").inc(len(rows))
        metrics.QUEUE_RECORDS.labels("refused").inc(len(ids) - len(rows))
        if rows:
            self.shares.charge(line.tenant, len(rows))
        if not self.ready.has(line.line_id):
            self._known.served_named(line)
        return rows

    async def _claim_limited(
        self, connection: Connection, line: Line, workers: list[FreeCapacity], slot_order: list[int]
    ) -> tuple[list[Claimed], list[int], LimitBudgets]:
        """Return the rows, the slots that the limits allowed, and what is left of the limits."""
        capped = self._settings.has_cap(line)
        if line.limit_id and not line.rate_id and not capped:
            # A concurrency key alone is one statement. If that finds nothing, the transaction below finds out why.
            rows = await self._claim_slots(connection, line, workers, slot_order, key=line.limit_id)
            if rows:
                slots = rows[0]["slots"]
                left = LimitBudgets(keys={line.limit_id: StartBudget(slots - len(rows))})
                return rows, slot_order[:slots], left
        async with connection.transaction():
            budgets = await limits.lock_and_count(connection, [line], [line] if capped else [])
            slot_order = slot_order[: max(0, budgets.left(line, len(slot_order)))]
            rows = await self._claim_slots(connection, line, workers, slot_order) if slot_order else []
            budgets.charge(line, len(rows))
            await budgets.advance_rates(connection, rows, {line.line_id: line})
        return rows, slot_order, budgets

    async def _claim_slots(
        self,
        connection: Connection,
        line: Line,
        workers: list[FreeCapacity],
        slot_order: list[int],
        *,
        key: int | None = None,
    ) -> list[Claimed]:
        return await claims.claim(
            connection,
            tenant=line.tenant,
            line_id=line.line_id,
            after=line.begin_claim(),
            sessions=[worker.session_id for worker in workers],
            slot_order=slot_order,
            key=key,
        )

    def _hold_back(self, line: Line, budgets: LimitBudgets, freed: int) -> None:
        """Skip a line whose limit is reached until a slot is free or its rate allows the next start."""
        if budgets.cap_reached(line):
            self._capped.add(line)
            line.at_limit = True
        elif budgets.key_reached(line) and line.freed == freed:
            line.at_limit = True
        line.not_before = self._clock.monotonic() + budgets.wait_s(line)

    # Several lines, resource demands, reserved capacity ------------------------------------------------

    async def _claim_matched(self, group: ClaimGroup, workers: Workers) -> list[Claimed]:
        lines = {line.line_id: line for line in _select(group.lines)}
        by_profile = {profile: list(workers(profile)) for profile in group.profiles}
        for line in lines.values():
            self._known.fresh.discard(line)
        freed = {line: line.freed for line in lines.values()}
        try:
            async with self._database.hot() as connection:
                candidates = await self._peek(connection, group, lines, by_profile)
                if not any(candidate.rows for candidate in candidates):
                    return []
                parts = candidates
                if self._reservations:
                    parts = await self._reservations.split(connection, candidates, lines)
                rows, budgets = await self._match_within_limits(connection, parts, lines)
        except BaseException:
            self._known.fresh.update(lines.values())
            raise
        for candidate in candidates:
            if parts is not candidates:
                merge_parts(candidate, [part for part in parts if part.line_id == candidate.line_id])
            line = lines[candidate.line_id]
            self._update(line, candidate, budgets, freed[line])
        return rows

    async def _peek(
        self,
        connection: Connection,
        group: ClaimGroup,
        lines: dict[int, Line],
        by_profile: dict[WorkerProfile, list[FreeCapacity]],
    ) -> list[LineCandidates]:
        """Read the first executions of each line, without locks."""
        shared: dict[tuple[WorkerProfile, ...], list[FreeCapacity]] = {}
        candidates = []
        for line in lines.values():
            serving = group.lines[line]
            if serving not in shared:
                shared[serving] = [worker for profile in serving for worker in by_profile[profile]]
            packs = self._settings.of(line).packs(line.demand)
            candidates.append(LineCandidates(line.line_id, line.tenant, line.demand, (), shared[serving], packs=packs))
        most = {c.line_id: min(lines[c.line_id].batch, sum(worker.free for worker in c.workers)) for c in candidates}
        if self._reservations:
            for candidate in candidates:
                if any(worker.reserved for worker in candidate.workers):
                    most[candidate.line_id] = max(LOOK_AHEAD, most[candidate.line_id])
        wanted = [(line.line_id, line.begin_claim(), most[line.line_id]) for line in lines.values()]
        found = await claims.peek(connection, lines=wanted)
        for candidate in candidates:
            candidate.rows = found[candidate.line_id]
            candidate.more = len(candidate.rows) == most[candidate.line_id] > 0
        return candidates

    async def _match_within_limits(
        self, connection: Connection, candidates: list[LineCandidates], lines: dict[int, Line]
    ) -> tuple[list[Claimed], LimitBudgets]:
        capped = [line for line in lines.values() if self._settings.has_cap(line)]
        if not capped and not any(line.limited for line in lines.values()):
            return await self._match_and_start(connection, candidates), LimitBudgets()
        async with connection.transaction():
            budgets = await limits.lock_and_count(connection, list(lines.values()), capped)
            for candidate in candidates:
                candidate.budgets = budgets.of(lines[candidate.line_id])
            rows = await self._match_and_start(connection, candidates)
            await budgets.advance_rates(connection, rows, lines)
        return rows, budgets

    async def _match_and_start(self, connection: Connection, candidates: list[LineCandidates]) -> list[Claimed]:
        matched = match(candidates, self.shares)
        if not matched:
            return []
        rows = await claims.start_matched(connection, matched=[(m.execution_id, m.session_id) for m in matched])
        self.unserved = {m.session_id for m in matched} - {row["session_id"] for row in rows}
        return rows

    def _update(self, line: Line, candidate: LineCandidates, budgets: LimitBudgets, freed: int) -> None:
        if candidate.assigned and not self.unserved:
            line.advance(*candidate.rows[candidate.assigned - 1])
        line.batch = min(MAX_BATCH, max(MIN_BATCH, 4 * candidate.assigned))
        if candidate.stop == "empty" and not self.unserved:
            return
        self._known.fresh.add(line)
        if candidate.stop == "limit":
            self._hold_back(line, budgets, freed)

    def reopen_capped(self) -> None:
        """Ask capped lines again: a worker has a free slot, maybe because an execution under a cap has ended."""
        for line in self._capped:
            line.at_limit = False
        self._capped.clear()

    def next_start(self) -> float | None:
        """Return when the first line held back by its rate may start again, by the monotonic clock."""
        now = self._clock.monotonic()
        return min((line.not_before for line in self._known.fresh if line.not_before > now), default=None)


def _group_by_workers(wanted: Serving) -> list[ClaimGroup]:
    """Put lines that compete for workers into one group; other lines are claimed separately."""
    groups: list[ClaimGroup] = []
    for line, serving in wanted.items():
        touching = [group for group in groups if not group.profiles.isdisjoint(serving)]
        merged = ClaimGroup({line: serving}, set(serving))
        for group in touching:
            merged.lines |= group.lines
            merged.profiles |= group.profiles
            groups.remove(group)
        groups.append(merged)
    return groups


def _select(lines: Iterable[Line]) -> list[Line]:
    """Return at most MAX_LINES lines: the tenants in turn, lowest ranks first."""
    by_tenant: dict[int, list[Line]] = {}
    for line in sorted(lines, key=lambda line: line.after):
        by_tenant.setdefault(line.tenant, []).append(line)
    rounds = zip_longest(*by_tenant.values())
    return list(islice((line for turn in rounds for line in turn if line is not None), MAX_LINES))
