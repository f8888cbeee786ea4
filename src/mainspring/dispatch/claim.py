"""Claiming for the workers that wait: plans what can be claimed together, and does it.

Most of the time there is one line with nothing special about it; that is one statement. Several lines, demands for
resources, or limits take a look, a match and a second statement, under limits in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from uuid import UUID

from mainspring.clock import Clock
from mainspring.dispatch import limits
from mainspring.dispatch.fairness import Shares
from mainspring.dispatch.lines import SMALL, Line, LineBook, Profile
from mainspring.dispatch.match import Gate, Pending, Room, deal, match
from mainspring.dispatch.reservation_cache import LOOK_AHEAD, Keeping, join
from mainspring.dispatch.settings import Settings
from mainspring.store import claims
from mainspring.store.claims import Claimed
from mainspring.store.db import Connection, Database

BATCH = 1000
MOST_LINES = 200
MOST_ROOMS = 300

Rooms = Callable[[Profile], Iterable[Room]]


@dataclass(slots=True)
class Plan:
    """Lines that want the same workers."""

    lines: dict[Line, tuple[Profile, ...]]
    profiles: set[Profile]


class Claimer:
    def __init__(
        self, database: Database, book: LineBook, settings: Settings, keeping: Keeping, *, clock: Clock
    ) -> None:
        self.shares = Shares()
        self.capped: set[Line] = set()  # closed by a cap: nobody tells when there is room again
        self.unlucky: set[UUID] = set()  # sessions that got nothing of what was meant for them: ended, or too late
        self._database = database
        self._book = book
        self._settings = settings
        self._keeping = keeping
        self._clock = clock

    def plan(self, profiles: Sequence[Profile], fits: Callable[[Profile, Line], bool]) -> list[Plan]:
        """What can be claimed now for workers of these profiles; `fits`: whether one of them has room."""
        now = self._clock.monotonic()
        wanted: dict[Line, tuple[Profile, ...]] = {}
        left: list[Line] = []
        for line in self._book.fresh:
            if line.full or line.not_before > now or self._settings.of(line).paused:
                continue
            serving = tuple(p for p in profiles if line.queue in p.queues and line.reached_by(p) and fits(p, line))
            if serving:
                wanted[line] = serving
            else:
                left.append(line)
        if left or len(wanted) > 1:
            self._add_help(wanted, left, profiles, fits)
        return _components(wanted)

    def _add_help(
        self,
        wanted: dict[Line, tuple[Profile, ...]],
        left: list[Line],
        profiles: Sequence[Profile],
        fits: Callable[[Profile, Line], bool],
    ) -> None:
        """Workers whose own queues have nothing for them may take from others that they are allowed to help."""
        busy = {profile for serving in wanted.values() for profile in serving}
        idle = [profile for profile in profiles if profile not in busy]
        for line in [*wanted, *left] if idle else ():
            helping = tuple(
                p
                for p in idle
                if line.queue not in p.queues and self._settings.helps(p, line) and line.reached_by(p) and fits(p, line)
            )
            if helping:
                wanted[line] = wanted.get(line, ()) + helping

    async def claim(self, plan: Plan, rooms: Rooms) -> list[Claimed]:
        """Claims for one plan. Lines stay fresh that may have more."""
        self.unlucky = set()
        first, *others = plan.lines
        if not others and first.demand.plain:
            found = list(islice(chain(*map(rooms, plan.profiles)), MOST_ROOMS))
            if not self._keeping or not any(room.holds for room in found):
                return await self._claim_line(first, found)
        return await self._claim_matched(plan, rooms)

    def is_plain(self, line: Line) -> bool:
        """Whether any free slot will do, and nothing has to be counted."""
        return line.demand.plain and not line.limited and not self._settings.capped(line)

    async def _claim_line(self, line: Line, rooms: list[Room]) -> list[Claimed]:
        """One line whose executions need nothing but a slot, under limits or not."""
        turns = deal(rooms, line.asked, packs=self._settings.of(line).packs(line.demand))
        if not turns:
            return []
        # Before the claim: what is queued while it runs makes the line fresh again.
        self._book.fresh.discard(line)
        held, freed = limits.Gates(), line.freed
        try:
            async with self._database.hot() as connection:
                if self.is_plain(line):
                    rows = await self._claim_turns(connection, line, rooms, turns)
                else:
                    rows, turns, held = await self._claim_limited(connection, line, rooms, turns)
        except BaseException:
            self._book.fresh.add(line)
            raise
        if len(rooms) > 1:
            meant = {rooms[turn - 1].session_id for turn in turns[: len(rows)]}
            self.unlucky = meant.difference(row["session_id"] for row in rows)
        if rows and not self.unlucky:
            line.passed(rows[-1]["rank"], rows[-1]["execution_id"])
        if rows:
            self.shares.charge(line.tenant, len(rows))
        if len(rows) == len(turns) or self.unlucky:
            self._book.fresh.add(line)
            self._close(line, held, freed)
        # About what there was last time: a thousand slots in the statement cost half a millisecond even if one is used.
        line.asked = min(BATCH, max(SMALL, 4 * len(rows)))
        return rows

    async def _claim_limited(
        self, connection: Connection, line: Line, rooms: list[Room], turns: list[int]
    ) -> tuple[list[Claimed], list[int], limits.Gates]:
        """The rows, the turns that the limits allowed, and what is left of those limits."""
        capped = self._settings.capped(line)
        if line.limit_id and not line.rate_id and not capped:
            # A concurrency key alone is one statement. If that finds nothing, the longer way knows why.
            rows = await self._claim_turns(connection, line, rooms, turns, key=line.limit_id)
            if rows:
                slots = rows[0]["slots"]
                return rows, turns[:slots], limits.Gates(keys={line.limit_id: Gate(slots - len(rows))})
        async with connection.transaction():
            held = await limits.hold(connection, [line], [line] if capped else [])
            turns = turns[: max(0, held.left(line, len(turns)))]
            rows = await self._claim_turns(connection, line, rooms, turns) if turns else []
            held.use(line, len(rows))
            await held.settle(connection, rows, {line.line_id: line})
        return rows, turns, held

    async def _claim_turns(
        self, connection: Connection, line: Line, rooms: list[Room], turns: list[int], *, key: int | None = None
    ) -> list[Claimed]:
        return await claims.claim(
            connection,
            tenant=line.tenant,
            line_id=line.line_id,
            after=line.begin(),
            sessions=[room.session_id for room in rooms],
            turns=turns,
            key=key,
        )

    def _close(self, line: Line, held: limits.Gates, freed: int) -> None:
        """A line whose limit is reached is not asked for again until there is reason to."""
        if held.closed_by_cap(line):
            self.capped.add(line)
            line.full = True
        elif held.closed_by_key(line) and line.freed == freed:
            line.full = True
        line.not_before = self._clock.monotonic() + held.wait_s(line)

    # Several lines, resources, limits ----------------------------------------------------------------

    async def _claim_matched(self, plan: Plan, rooms: Rooms) -> list[Claimed]:
        lines = {line.line_id: line for line in _most_urgent(plan.lines)}
        known = {profile: list(rooms(profile)) for profile in plan.profiles}
        for line in lines.values():
            self._book.fresh.discard(line)
        freed = {line: line.freed for line in lines.values()}
        try:
            async with self._database.hot() as connection:
                pending = await self._look(connection, plan, lines, known)
                if not any(p.rows for p in pending):
                    return []
                parts = await self._keeping.split(connection, pending, lines) if self._keeping else pending
                capped = [line for line in lines.values() if self._settings.capped(line)]
                if capped or any(line.limited for line in lines.values()):
                    async with connection.transaction():
                        held = await limits.hold(connection, list(lines.values()), capped)
                        for p in parts:
                            p.gates = held.of(lines[p.line_id])
                        rows = await self._take(connection, parts)
                        await held.settle(connection, rows, lines)
                else:
                    held = limits.Gates()
                    rows = await self._take(connection, parts)
        except BaseException:
            self._book.fresh.update(lines.values())
            raise
        for p in pending:
            if parts is not pending:
                join(p, [part for part in parts if part.line_id == p.line_id])
            self._after(lines[p.line_id], p, held, freed[lines[p.line_id]])
        return rows

    async def _look(
        self, connection: Connection, plan: Plan, lines: dict[int, Line], known: dict[Profile, list[Room]]
    ) -> list[Pending]:
        shared: dict[tuple[Profile, ...], list[Room]] = {}
        pending = []
        for line in lines.values():
            serving = plan.lines[line]
            if serving not in shared:
                shared[serving] = [room for profile in serving for room in known[profile]]
            packs = self._settings.of(line).packs(line.demand)
            pending.append(Pending(line.line_id, line.tenant, line.demand, (), shared[serving], packs=packs))
        most = {p.line_id: min(lines[p.line_id].asked, sum(room.free for room in p.rooms)) for p in pending}
        if self._keeping:
            most |= {p.line_id: max(LOOK_AHEAD, most[p.line_id]) for p in pending if any(r.holds for r in p.rooms)}
        wanted = [(line.line_id, line.begin(), most[line.line_id]) for line in lines.values()]
        found = await claims.peek(connection, lines=wanted)
        for p in pending:
            p.rows = found[p.line_id]
            p.more = len(p.rows) == most[p.line_id] > 0
        return pending

    async def _take(self, connection: Connection, pending: list[Pending]) -> list[Claimed]:
        matched = match(pending, self.shares)
        if not matched:
            return []
        rows = await claims.take(connection, matched=[(m.execution_id, m.session_id) for m in matched])
        self.unlucky = {m.session_id for m in matched} - {row["session_id"] for row in rows}
        return rows

    def _after(self, line: Line, p: Pending, held: limits.Gates, freed: int) -> None:
        if p.tried and not self.unlucky:
            line.passed(*p.rows[p.tried - 1])
        line.asked = min(BATCH, max(SMALL, 4 * p.tried))
        if p.stop == "empty" and not self.unlucky:
            return
        self._book.fresh.add(line)
        if p.stop == "full":
            self._close(line, held, freed)

    def reopen_capped(self) -> None:
        """A worker has room again, maybe because something under a cap has ended."""
        for line in self.capped:
            line.full = False
        self.capped.clear()

    def next_start(self) -> float | None:
        """When the first line that waits for its rate may go on, by the monotonic clock."""
        now = self._clock.monotonic()
        return min((line.not_before for line in self._book.fresh if line.not_before > now), default=None)


def _components(wanted: dict[Line, tuple[Profile, ...]]) -> list[Plan]:
    """Lines that compete for workers belong into one plan; others are claimed apart."""
    plans: list[Plan] = []
    for line, serving in wanted.items():
        touching = [plan for plan in plans if not plan.profiles.isdisjoint(serving)]
        merged = Plan({line: serving}, set(serving))
        for plan in touching:
            merged.lines |= plan.lines
            merged.profiles |= plan.profiles
            plans.remove(plan)
        plans.append(merged)
    return plans


def _most_urgent(lines: Iterable[Line]) -> list[Line]:
    """Not more lines than one look should take, every tenant's turn in turn, lowest ranks first."""
    by_tenant: dict[int, list[Line]] = {}
    for line in sorted(lines, key=lambda line: line.after):
        by_tenant.setdefault(line.tenant, []).append(line)
    turns = zip_longest(*by_tenant.values())
    return list(islice((line for turn in turns for line in turn if line is not None), MOST_LINES))
