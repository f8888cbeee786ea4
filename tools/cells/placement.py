"""A year of tenants on cells: where each is placed, and which are moved as they grow."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from statistics import median

SEED = 144
TENANTS = 10_000
JOBS = 10_000_000
PER_S = 1e9 / 86_400
CELL_PER_S = 1_150.0
"""The highest rate that was measured over minutes, on two cores: see docs/explanation/sizing.md."""
FILL, HIGH = 0.75, 0.90
"""New tenants fill a cell up to FILL; above HIGH, tenants leave it until it is back at FILL."""
SKEW = 0.9
WEEKS, GROWTH, SPREAD = 52, 2.0, 0.05
JOBS_PER_S = 10_000 / 3.4
"""Definitions written per second: section `apply` of benchmarks/RESULTS.md."""
EXECUTIONS_PER_S = 26_487
"""Executions inserted per second: section `interactive` of benchmarks/RESULTS.md."""
RUNS_S, GRACE_S = 5.0, 60.0
"""Assumed: mean duration of an execution, and how long a move waits for those that run."""
SWITCH_S = 1.0
"""Assumed: the directory's write, and the routers' next look at it."""


@dataclass
class Tenant:
    per_s: float
    jobs: float
    weekly: list[float]
    """The factor by which both grow, for each week."""


@dataclass
class Cell:
    tenants: list[Tenant] = field(default_factory=list)
    per_s: float = 0.0

    def add(self, tenant: Tenant) -> None:
        self.tenants.append(tenant)
        self.per_s += tenant.per_s

    def remove(self, tenant: Tenant) -> None:
        self.tenants.remove(tenant)
        self.per_s -= tenant.per_s

    @property
    def full(self) -> float:
        return self.per_s / CELL_PER_S


@dataclass
class Year:
    """What happened to the fleet of cells."""

    cells_before: int
    cells_after: int
    moves: int
    jobs_moved: float
    pauses: list[float]
    fullest: float
    largest_per_s: float

    @property
    def longest_s(self) -> float:
        return max(self.pauses)

    @property
    def median_s(self) -> float:
        return median(self.pauses)


Choice = Callable[[Cell], Tenant]


def population(seed: int = SEED) -> list[Tenant]:
    """Tenants in the order of their arrival. The load of the k-th largest is proportional to k ** -SKEW."""
    rng = Random(seed)
    weights = [rank**-SKEW for rank in range(1, TENANTS + 1)]
    jobs = [weight * rng.lognormvariate(0, 1) for weight in weights]
    per_s, per_job = PER_S / sum(weights), JOBS / sum(jobs)
    drift = math.log(GROWTH) / WEEKS - SPREAD**2 / 2
    tenants = [
        Tenant(weight * per_s, count * per_job, [math.exp(rng.gauss(drift, SPREAD)) for _ in range(WEEKS)])
        for weight, count in zip(weights, jobs, strict=True)
    ]
    rng.shuffle(tenants)
    return tenants


def place(tenant: Tenant, cells: list[Cell], most: float = FILL) -> Cell:
    """The emptiest cell that has room; a new one if none has. A tenant above `most` gets a cell of its own."""
    cell = min(cells, key=lambda one: one.per_s, default=None)
    if cell is None or (cell.tenants and cell.per_s + tenant.per_s > most * CELL_PER_S):
        cell = Cell()
        cells.append(cell)
    cell.add(tenant)
    return cell


def placed(tenants: list[Tenant]) -> list[Cell]:
    cells: list[Cell] = []
    for tenant in tenants:
        place(tenant, cells)
    return cells


def hashed(tenants: list[Tenant], count: int, seed: int = SEED) -> list[Cell]:
    """The same number of cells without a directory: a hash of the tenant selects its cell."""
    rng = Random(seed)
    cells = [Cell() for _ in range(count)]
    for tenant in tenants:
        rng.choice(cells).add(tenant)
    return cells


def largest(cell: Cell) -> Tenant:
    return max(cell.tenants, key=lambda one: one.per_s)


def smallest(cell: Cell) -> Tenant:
    return min(cell.tenants, key=lambda one: one.per_s)


def sufficient(cell: Cell) -> Tenant:
    """The smallest tenant whose departure is enough, or the largest."""
    excess = cell.per_s - FILL * CELL_PER_S
    return min((one for one in cell.tenants if one.per_s >= excess), key=lambda one: one.per_s, default=largest(cell))


CHOICES: dict[str, Choice] = {"the largest": largest, "the smallest": smallest, "one that is enough": sufficient}


def pause_s(tenant: Tenant, rng: Random) -> float:
    """How long a move holds the tenant's fires: executions end, the rest is copied, the directory is switched."""
    running = max(1.0, tenant.per_s * RUNS_S)
    last = -RUNS_S * math.log(
        -math.expm1(math.log(1 - rng.random()) / running)
    )  # the last of `running` exponential times
    return min(GRACE_S, last) + tenant.jobs / JOBS_PER_S + running / EXECUTIONS_PER_S + SWITCH_S


def year(choice: Choice, seed: int = SEED) -> Year:
    """Weeks of growth; each week, tenants leave the cells that are too full."""
    tenants, rng = population(seed), Random(seed)
    cells = placed(tenants)
    result = Year(len(cells), 0, 0, 0.0, [], 0.0, 0.0)
    for week in range(WEEKS):
        for tenant in tenants:
            tenant.per_s *= tenant.weekly[week]
            tenant.jobs *= tenant.weekly[week]
        for cell in cells:
            cell.per_s = sum(tenant.per_s for tenant in cell.tenants)
        result.fullest = max(result.fullest, *(cell.full for cell in cells if len(cell.tenants) > 1))
        for cell in [one for one in cells if one.full > HIGH]:
            _relieve(cell, cells, choice, result, rng)
    result.cells_after = len(cells)
    result.largest_per_s = max(tenant.per_s for tenant in tenants)
    return result


def _relieve(cell: Cell, cells: list[Cell], choice: Choice, result: Year, rng: Random) -> None:
    while cell.full > FILL and len(cell.tenants) > 1:
        tenant = choice(cell)
        cell.remove(tenant)
        place(tenant, cells)
        result.moves += 1
        result.jobs_moved += tenant.jobs
        result.pauses.append(pause_s(tenant, rng))


@dataclass
class Loss:
    """One cell is lost with its standby, and its tenants are restored on the others."""

    tenants: int
    share: float
    jobs: float
    opened: int

    @property
    def restore_s(self) -> float:
        """Definitions only, into one cell after the other."""
        return self.jobs / JOBS_PER_S


def losses(seed: int = SEED) -> list[Loss]:
    """For each cell in turn: what its loss affects, and how many cells must be opened if others may fill up to HIGH."""
    tenants, found = population(seed), []
    for index in range(len(placed(tenants))):
        cells = placed(tenants)
        lost = cells.pop(index)
        before = len(cells)
        for tenant in sorted(lost.tenants, key=lambda one: -one.per_s):
            place(tenant, cells, HIGH)
        jobs = sum(tenant.jobs for tenant in lost.tenants)
        found.append(Loss(len(lost.tenants), lost.per_s / PER_S, jobs, len(cells) - before))
    return found


def share_of_largest(tenants: list[Tenant], count: int) -> float:
    """The share of the load that the largest tenants have together."""
    return list(accumulate(sorted((one.per_s for one in tenants), reverse=True)))[count - 1] / PER_S
