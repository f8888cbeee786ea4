"""Limits at claim time: counted against live rows in the claiming transaction, with the rows of the keys held.

A slot is a running execution, so it can't leak; two dispatchers can't both take the last one, because the second counts
after the first has committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mainspring.dispatch.lines import Line
from mainspring.dispatch.match import Gate
from mainspring.store import lines, queues
from mainspring.store.claims import Claimed
from mainspring.store.db import Connection
from mainspring.store.lines import Limit


@dataclass(slots=True)
class Gates:
    """The limits some lines are under."""

    keys: dict[int, Gate] = field(default_factory=dict)
    rates: dict[int, Limit] = field(default_factory=dict)
    queues: dict[tuple[int, str], Gate] = field(default_factory=dict)
    tenants: dict[int, Gate] = field(default_factory=dict)

    def of(self, line: Line) -> list[Gate]:
        found = [
            self.keys.get(line.limit_id),
            self.keys.get(line.rate_id),
            self.queues.get((line.tenant, line.queue)),
            self.tenants.get(line.tenant),
        ]
        return [gate for gate in found if gate is not None]

    def left(self, line: Line, most: int) -> int:
        """How many more of a line may start, if it is alone; no more than `most`."""
        return min([most, *(gate.left for gate in self.of(line))])

    def use(self, line: Line, starts: int) -> None:
        for gate in self.of(line):
            gate.left -= starts

    def closed_by_cap(self, line: Line) -> bool:
        gates = (self.queues.get((line.tenant, line.queue)), self.tenants.get(line.tenant))
        return any(gate is not None and gate.left <= 0 for gate in gates)

    def closed_by_key(self, line: Line) -> bool:
        gate = self.keys.get(line.limit_id)
        return gate is not None and gate.left <= 0

    def wait_s(self, line: Line) -> float:
        """How long the line's rate lets nothing start."""
        rate = self.rates.get(line.rate_id)
        if rate is None or rate.pace is None or rate.pace.next_ms is None:
            return 0.0
        return max(0.0, (rate.pace.next_ms - rate.now_ms) / 1000)

    async def settle(self, connection: Connection, taken: Sequence[Claimed], known: dict[int, Line]) -> None:
        """Moves the rates on by what really started."""
        started: dict[int, int] = {}
        for row in taken:
            if rate_id := known[row["line_id"]].rate_id:
                started[rate_id] = started.get(rate_id, 0) + 1
        for rate_id, n in started.items():
            self.rates[rate_id] = self.rates[rate_id].started(n)
        next_ms = {r: pace.next_ms for r in started if (pace := self.rates[r].pace) and pace.next_ms is not None}
        if next_ms:
            await lines.advance_rates(connection, next_ms=next_ms)


async def hold(connection: Connection, wanted: Sequence[Line], capped: Sequence[Line]) -> Gates:
    """Holds the keys and caps of these lines, then counts. Needs a transaction: each statement sees what was committed
    before it, so the count, which comes after the locks, is the truth until this transaction ends."""
    gates = Gates()
    key_ids = sorted({i for line in wanted for i in (line.limit_id, line.rate_id) if i})
    held = await lines.lock_limits(connection, limit_ids=key_ids) if key_ids else []
    caps: tuple[dict[tuple[int, str], int], dict[int, int]] = ({}, {})
    if capped:
        caps = await queues.lock_caps(connection, queues=sorted({(line.tenant, line.queue) for line in capped}))
    concurrent = [limit.limit_id for limit in held if limit.pace is None]
    holders = await lines.count_holders(connection, limit_ids=concurrent) if concurrent else {}
    for limit in held:
        if limit.pace is None:
            gates.keys[limit.limit_id] = Gate(limit.most - holders[limit.limit_id])
        else:
            gates.keys[limit.limit_id] = Gate(limit.pace.allowed(limit.now_ms))
            gates.rates[limit.limit_id] = limit
    if caps[0] or caps[1]:
        await _count_caps(connection, gates, *caps)
    return gates


async def _count_caps(
    connection: Connection, gates: Gates, queue_caps: dict[tuple[int, str], int], tenant_caps: dict[int, int]
) -> None:
    tenants = sorted({tenant for tenant, _ in queue_caps} | tenant_caps.keys())
    running = await queues.count_running(connection, tenants=tenants)
    gates.queues = {queue: Gate(cap - running.get(queue, 0)) for queue, cap in queue_caps.items()}
    for tenant, cap in tenant_caps.items():
        gates.tenants[tenant] = Gate(cap - sum(n for (owner, _), n in running.items() if owner == tenant))
