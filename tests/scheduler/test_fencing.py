"""Owners come, go, die, sleep, lose their connections and wake up again, in any order, on the virtual clock.

Whatever happens: every instant up to a shard's watermark is decided once, and none beyond it; and whoever acts with an
epoch that has moved on changes nothing, even if the shard has become its own again meanwhile.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mainspring.domain.job import Misfire
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.embedded.server import EmbeddedServer
from mainspring.scheduler.service import Scheduler
from mainspring.store import shards
from mainspring.store.db import Database
from mainspring.testing.clock import START, VirtualClock
from tests.conftest import clone
from tests.support.empty_tables import emptying
from tests.support.fire_checker import judge
from tests.support.flaky_database import Flaky
from tests.support.scheduling import add, sees_the_time, step
from tests.support.silent_bus import SilentBus

T = TypeVar("T")
ROUNDS = int(os.environ.get("FAULT_ROUNDS", "1"))
LEASE_S = 30
MOST = 4
EVERY = st.sampled_from([5, 7, 20, 60])
TROUBLE = st.lists(st.sampled_from(["before", "after", ""]), max_size=3)
LONGEST_S = 450
"""So that no job ever misses more instants than are listed one by one."""


RESET = f"""
{emptying("executions", "history", "job_versions", "jobs", "schedulers")}
UPDATE shards SET owner = NULL, lease_expires_at = NULL, watermark = db_now(), changes = 0;
"""


class Owners(RuleBasedStateMachine):
    """Each scheduler has a connection pool of its own, as processes have."""

    runner: asyncio.Runner
    url: str

    @initialize(every=st.lists(EVERY, min_size=1, max_size=4))
    def begin(self, every: list[int]) -> None:
        self.living: list[tuple[Scheduler, Flaky]] = []
        self.dead: list[tuple[Scheduler, Flaky]] = []
        self.jobs = 0
        self.database = Database(self.url, size=2)
        self.clock = VirtualClock(self.database)
        self.do(self.database.open())
        self.do(self._reset())
        for every_s in every:
            self.add_job(every_s)
        self.join()

    @property
    def has_time(self) -> bool:
        return (self.clock.now - START).total_seconds() < LONGEST_S - 90 - LEASE_S - 1

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def _reset(self) -> None:
        await self.clock.set(START)
        async with self.database.connection() as connection:
            await connection.execute(RESET)

    @rule()
    @precondition(lambda self: len(self.living) < MOST)
    def join(self) -> None:
        database = Flaky(self.url)
        self.do(database.open())
        scheduler = Scheduler(database, SilentBus(), lease_s=LEASE_S)
        self.do(scheduler.lease())
        self.living.append((scheduler, database))

    @rule(n=st.integers(0, MOST - 1))
    @precondition(lambda self: self.living)
    def leave(self, n: int) -> None:
        scheduler, database = self.living.pop(n % len(self.living))
        with suppress(ConnectionResetError):
            self.do(scheduler.drain())
        self.dead.append((scheduler, database))

    @rule(n=st.integers(0, MOST - 1))
    @precondition(lambda self: self.living)
    def die(self, n: int) -> None:
        """Or be stopped: it may wake up later, with the wheel it had."""
        self.dead.append(self.living.pop(n % len(self.living)))

    @rule(n=st.integers(0, 10), leases=st.booleans())
    @precondition(lambda self: self.dead)
    def wake_up(self, n: int, leases: bool) -> None:
        scheduler, database = self.dead[n % len(self.dead)]
        database.trouble.clear()
        with self.fenced(scheduler):
            self.do(scheduler.decide())
        if leases:
            self.living.append(self.dead.pop(n % len(self.dead)))

    @rule(n=st.integers(0, MOST - 1), what=st.sampled_from(["step", "lease", "decide"]), trouble=TROUBLE)
    @precondition(lambda self: self.living)
    def act(self, n: int, what: str, trouble: list[str]) -> None:
        scheduler, database = self.living[n % len(self.living)]
        database.trouble = list(trouble)
        if what == "decide":
            with self.fenced(scheduler), suppress(ConnectionResetError):
                self.do(scheduler.decide())
        else:
            with suppress(ConnectionResetError):
                self.do(step(scheduler) if what == "step" else scheduler.lease())
        database.trouble = []

    @contextmanager
    def fenced(self, scheduler: Scheduler) -> Iterator[None]:
        """What it does inside leaves alone the shards whose epoch is no longer the one it knows."""
        before = self.do(self._marks())
        known = {shard: holding.epoch for shard, holding in scheduler._owned.items()}
        coming = {shard for arrival in scheduler._loader.loaded for shard in arrival.shards}
        stale = [shard for shard, epoch in known.items() if shard not in coming and before[shard][0] != epoch]
        sees_the_time(scheduler, self.clock.now)
        yield
        after = self.do(self._marks())
        assert {s: after[s] for s in stale} == {s: before[s] for s in stale}, "the fence did not hold"

    async def _marks(self) -> dict[int, tuple[int, datetime]]:
        async with self.database.connection() as connection:
            return {r["shard"]: (r["epoch"], r["watermark"]) for r in await connection.fetch("TABLE shards")}

    @rule(n=st.integers(0, 10), seconds=st.sampled_from([5, 20]))
    @precondition(lambda self: self.living and self.has_time)
    def lose_all_and_get_it_back_unheard(self, n: int, seconds: int) -> None:
        """Another takes its shards and gives them back while it looks away: the owner is right, the epoch is not."""
        scheduler, _ = self.living[n % len(self.living)]
        self.act(n % len(self.living), "step", [])
        self.do(self._back_and_forth(scheduler))
        self.do(self.clock.advance(seconds=seconds))
        with self.fenced(scheduler):
            self.do(scheduler.decide())

    async def _back_and_forth(self, scheduler: Scheduler) -> None:
        other = uuid4()
        async with self.database.connection() as connection:
            rows = await connection.fetch("SELECT * FROM shards WHERE owner = $1 ORDER BY shard", scheduler.owner)
            seen = [shards.Shard(r["shard"], r["owner"], r["epoch"], 0, r["changes"]) for r in rows]
            taken = await shards.take_shards(connection, owner=other, lease_s=LEASE_S, seen=seen)
            successors = [(s.shard, s.epoch, scheduler.owner) for s in taken]
            await shards.hand_over_shards(connection, owner=other, lease_s=LEASE_S, to=successors)

    @rule(n=st.integers(0, MOST - 1), seconds=st.sampled_from([5, 16, 25]), trouble=TROUBLE)
    @precondition(lambda self: self.living and self.has_time)
    def act_later(self, n: int, seconds: int, trouble: list[str]) -> None:
        """All is well, then time passes, its beat succeeds and its deciding runs into trouble; then the next beat."""
        self.act(n, "step", [])
        self.do(self.clock.advance(seconds=seconds))
        self.act(n, "lease", [])
        self.act(n, "decide", trouble)
        self.do(self.clock.advance(seconds=seconds))
        self.act(n, "lease", [])

    @rule(first=st.integers(0, MOST - 1), second=st.integers(0, MOST - 1))
    @precondition(lambda self: len(self.living) > 1)
    def act_at_once(self, first: int, second: int) -> None:
        async def both() -> None:
            pair = {self.living[n % len(self.living)][0] for n in (first, second)}
            await asyncio.gather(*[step(s) for s in pair], return_exceptions=True)

        self.do(both())

    @rule(seconds=st.sampled_from([0.3, 1, 5, 20, 31, 90]))
    @precondition(lambda self: self.has_time)
    def time_passes(self, seconds: float) -> None:
        self.do(self.clock.advance(seconds=seconds))

    @rule(every_s=EVERY)
    @precondition(lambda self: self.jobs < 12)
    def add_job(self, every_s: int) -> None:
        self.jobs += 1
        spec = {"schedule": ScheduleSpec(every=every_s, aligned=True), "misfire": Misfire(policy="all")}
        self.do(add(self.database, f"job-{every_s}-{self.jobs}", overlap="allow", **spec))

    @invariant()
    def every_instant_up_to_the_watermark_is_decided_once(self) -> None:
        verdict = self.do(judge(self.url))
        assert not (verdict.missed or verdict.doubled or verdict.invented or verdict.early), vars(verdict)

    def teardown(self) -> None:
        """In the end one that lives decides everything."""
        if not hasattr(self, "living"):
            return
        try:
            self.do(self.clock.advance(seconds=LEASE_S + 1))
            if len(self.living) == MOST:
                self.die(0)
            self.join()
            survivor, _ = self.living[-1]
            self.do(step(survivor))
            assert survivor.shards, "whoever comes after the lease has ended owns something"
            self.every_instant_up_to_the_watermark_is_decided_once()
        finally:
            for _, database in [*self.living, *self.dead]:
                self.do(database.close())
            self.do(self.database.close())


@pytest.mark.fault("F26")
@pytest.mark.requirement(32)
def test_at_most_one_owner_decides_and_nothing_is_lost_or_doubled(postgres: EmbeddedServer) -> None:
    with asyncio.Runner() as runner:
        Owners.runner, Owners.url = runner, runner.run(clone(postgres))

        async def install() -> None:
            async with Database(Owners.url, size=1) as database:
                await VirtualClock(database).install()

        runner.run(install())
        run_state_machine_as_test(
            Owners,
            settings=settings(
                max_examples=12 * ROUNDS,
                stateful_step_count=25,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.explicit, Phase.reuse, Phase.generate],
                print_blob=True,
            ),
        )
