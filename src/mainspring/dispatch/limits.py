"""Limits at claim time: counted against live rows in the claiming transaction, with the key rows locked.

A slot of a limit is a running execution, so it can't leak. Two dispatchers can't both take the last slot, because the
second one counts after the first has committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mainspring.dispatch.lines import Line
from mainspring.dispatch.match import StartBudget
from mainspring.store import lines, queues
from mainspring.store.claims import Claimed
from mainspring.store.db import Connection
from mainspring.store.lines import Limit


@dataclass(slots=True)
class LimitBudgets:
    """What is left of the limits that apply to some lines."""

    keys: dict[int, StartBudget] = field(default_factory=dict)
    rates: dict[int, Limit] = field(default_factory=dict)
    queues: dict[tuple[int, str], StartBudget] = field(default_factory=dict)
    tenants: dict[int, StartBudget] = field(default_factory=dict)

    def of(self, line: Line) -> list[StartBudget]:
        found = [
            self.keys.get(line.limit_id),
            self.keys.get(line.rate_id),
            self.queues.get((line.tenant, line.queue)),
            self.tenants.get(line.tenant),
        ]
        return [budget for budget in found if budget is not None]

    def left(self, line: Line, most: int) -> int:
        """Return how many more executions of the line may start, at most `most`, if no other line competes."""
        return min([most, *(budget.left for budget in self.of(line))])

    def charge(self, line: Line, starts: int) -> None:
        for budget in self.of(line):
            budget.left -= starts

    def cap_reached(self, line: Line) -> bool:
        budgets = (self.queues.get((line.tenant, line.queue)), self.tenants.get(line.tenant))
        return any(budget is not None and budget.left <= 0 for budget in budgets)

    def key_reached(self, line: Line) -> bool:
        budget = self.keys.get(line.limit_id)
        return budget is not None and budget.left <= 0

    def wait_s(self, line: Line) -> float:
        """Return how long the line's rate blocks the next start."""
        rate = self.rates.get(line.rate_id)
        if rate is None or rate.pace is None or rate.pace.next_ms is None:
            return 0.0
        return max(0.0, (rate.pace.next_ms - rate.now_ms) / 1000)

    async def advance_rates(self, connection: Connection, taken: Sequence[Claimed], known: dict[int, Line]) -> None:
        """Advance the rates by the executions that really started."""
        started: dict[int, int] = {}
        for row in taken:
            if rate_id := known[row["line_id"]].rate_id:
                started[rate_id] = started.get(rate_id, 0) + 1
        for rate_id, n in started.items():
            self.rates[rate_id] = self.rates[rate_id].started(n)
        next_ms = {r: pace.next_ms for r in started if (pace := self.rates[r].pace) and pace.next_ms is not None}
        if next_ms:
            await lines.advance_rates(connection, next_ms=next_ms)


async def lock_and_count(connection: Connection, wanted: Sequence[Line], capped: Sequence[Line]) -> LimitBudgets:
    """Lock the keys and caps of these lines, then count their slots.

    Needs a transaction: each statement sees what was committed before it, so the count, which comes after the locks,
    stays true until this transaction ends.
    """
    budgets = LimitBudgets()
    key_ids = sorted({i for line in wanted for i in (line.limit_id, line.rate_id) if i})
    locked = await lines.lock_limits(connection, limit_ids=key_ids) if key_ids else []
    caps: tuple[dict[tuple[int, str], int], dict[int, int]] = ({}, {})
    if capped:
        caps = await queues.lock_caps(connection, queues=sorted({(line.tenant, line.queue) for line in capped}))
    concurrent = [limit.limit_id for limit in locked if limit.pace is None]
    holders = await lines.count_holders(connection, limit_ids=concurrent) if concurrent else {}
    for limit in locked:
        if limit.pace is None:
            budgets.keys[limit.limit_id] = StartBudget(limit.most - holders[limit.limit_id])
        else:
            budgets.keys[limit.limit_id] = StartBudget(limit.pace.allowed(limit.now_ms))
            budgets.rates[limit.limit_id] = limit
    if caps[0] or caps[1]:
        await _count_caps(connection, budgets, *caps)
    return budgets


async def _count_caps(
    connection: Connection, budgets: LimitBudgets, queue_caps: dict[tuple[int, str], int], tenant_caps: dict[int, int]
) -> None:
    tenants = sorted({tenant for tenant, _ in queue_caps} | tenant_caps.keys())
    running = await queues.count_running(connection, tenants=tenants)
    budgets.queues = {queue: StartBudget(cap - running.get(queue, 0)) for queue, cap in queue_caps.items()}
    for tenant, cap in tenant_caps.items():
        budgets.tenants[tenant] = StartBudget(cap - sum(n for (owner, _), n in running.items() if owner == tenant))
