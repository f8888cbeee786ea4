"""Reserved places are free at their time, and used until then."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from mainspring import wire
from mainspring.domain.errors import Conflict, Invalid, NotFound
from mainspring.domain.settlement import AttemptResult
from mainspring.intake import reservations
from mainspring.results.batch import Report
from mainspring.store.db import Database
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import reservations as reservation_views
from mainspring.views import why_execution
from tests.support.dispatchers import Fleet, fleet

NOON = START + timedelta(minutes=10)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def new(name: str = "r", **more: Any) -> wire.NewReservation:
    return wire.NewReservation(**{"name": name, "start_at": NOON, "end_at": at(600), "queue": "vip", **more})


class ReservationBench:
    """One worker of two slots, and a clock that only the test moves."""

    def __init__(self, found: Fleet, clock: VirtualClock, session: UUID) -> None:
        self.fleet = found
        self.clock = clock
        self.session = session
        self.running: list[wire.Assignment] = []

    async def travel(self, to: datetime) -> None:
        await self.clock.set(to)
        async with self.fleet.database.connection() as connection:
            await connection.execute("UPDATE sessions SET lease_expires_at = db_now() + interval '1 h'")
        self.fleet.dispatchers[0]._settings.stale = True

    async def nothing(self) -> bool:
        """Whether the worker begins nothing, though all is looked at."""
        return not await self.poll(wait_s=0.5)

    async def poll(self, wait_s: float = 10.0) -> list[UUID]:
        """What the worker begins now."""
        poll = wire.Poll(session_id=self.session, free=2 - len(self.running), wait_s=wait_s)
        given = (await self.fleet.dispatchers[0].poll(poll, tenant=1)).executions
        self.running += given
        return [one.execution_id for one in given]

    async def end_all(self) -> None:
        ended = [AttemptResult(g.execution_id, g.attempt, self.session, "succeeded", 1) for g in self.running]
        assert not await self.fleet.settler.settle(Report(self.session, ended))
        self.running = []

    async def add(self, **more: Any) -> wire.Reservation:
        return await reservations.create(self.fleet.database, new(**more), tenant=1, by="test")

    async def codes(self, execution: UUID) -> list[str]:
        return [r.code for r in (await why_execution.execution(self.fleet.database, execution, tenant=1)).reasons]


@pytest.fixture
async def bench(fresh: Database, virtual: VirtualClock) -> AsyncIterator[ReservationBench]:
    async with fleet(fresh, dispatchers=1) as found:
        yield ReservationBench(
            found, virtual, await found.session(slots=2, queues=["short", "vip"], resources={"gpu": 1})
        )


@pytest.mark.requirement(79)
async def test_the_window_is_free_at_its_start_and_the_gap_before_it_is_used(bench: ReservationBench) -> None:
    found = bench.fleet
    assert list((await bench.add(slots=2)).places.values()) == [2]
    quick, slow = await found.job("quick", timeout="1m"), await found.job("slow", timeout="1h")
    vip = await found.job("vip", queue="vip")
    (waits,) = await found.submit(slow, 1)
    fills = await found.submit(quick, 2)
    assert sorted(await bench.poll()) == sorted(fills), "those behind it fill the gap, the slow one waits"
    assert "reserved" in await bench.codes(waits)
    await bench.end_all()

    await bench.travel(at(-72))
    (last,) = await found.submit(quick, 1)
    assert await bench.poll() == [last], "a minute, the grace and a second are left"
    await bench.end_all()
    await bench.travel(at(-70))
    (late,) = await found.submit(quick, 1)
    assert await bench.nothing(), "it could last into the window"

    await bench.travel(at(0))
    assert await bench.nothing(), "free, to the second"
    urgent = await found.submit(vip, 2)
    assert sorted(await bench.poll()) == sorted(urgent)
    await bench.end_all()
    await bench.travel(at(599))
    assert await bench.nothing(), "also between two of those it is for"
    assert "reserved" in await bench.codes(late)
    await bench.travel(at(600))
    assert sorted(await bench.poll()) == sorted([waits, late])


async def test_what_is_not_reserved_stays_anybodys(bench: ReservationBench) -> None:
    found = bench.fleet
    await bench.add(slots=1, resources={"gpu": 1})
    await bench.travel(at(1))
    gpu, plain = await found.job("gpu", resources={"gpu": 1}), await found.job("plain")
    (kept,) = await found.submit(gpu, 1)
    free, second = sorted(await found.submit(plain, 2))
    assert await bench.poll() == [free], "one of two slots is kept, and the gpu with it"
    assert await bench.nothing()
    (own,) = await found.submit(await found.job("own", queue="vip", resources={"gpu": 1}), 1)
    assert await bench.poll() == [own]
    await bench.end_all()
    await reservations.delete(found.database, "r", tenant=1, by="test")
    assert sorted([*await bench.poll(), *await bench.poll()]) == sorted([kept, second])


async def test_a_reservation_for_a_job_is_not_for_its_queue(bench: ReservationBench) -> None:
    found = bench.fleet
    mine, other = await found.job("mine", queue="vip"), await found.job("other", queue="vip")
    await bench.add(slots=2, queue=None, job="mine")
    await bench.travel(at(1))
    await found.submit(other, 1)
    (own,) = await found.submit(mine, 1)
    assert await bench.poll() == [own], "they wait in one line, and only the second may go"
    assert await bench.nothing()


async def test_what_can_not_be_kept_is_refused(bench: ReservationBench) -> None:
    database = bench.fleet.database

    async def refused(**more: Any) -> str:
        with pytest.raises(Invalid) as error:
            await bench.add(**more)
        (problem,) = error.value.problems
        assert problem.hint
        return problem.pointer

    assert await refused(slots=3) == "/slots"
    assert await refused(slots=2, resources={"gpu": 1}) == "/slots"
    assert await refused(labels={"zone": "a"}) == "/slots"
    assert await refused(queue="nobody-serves-it") == "/slots"
    assert await refused(end_at=NOON) == "/end_at"
    assert await refused(start_at=START - timedelta(hours=2), end_at=START - timedelta(hours=1)) == "/end_at"
    assert await refused(end_at=NOON + timedelta(days=40)) == "/end_at"
    assert await refused(job="x") == "/job"
    assert await refused(queue=None, job="no-such-job") == "/job"
    assert await refused(resources={"gpu": "many"}) == "/resources"
    assert await refused(shared=True) == "/shared"
    assert await refused(name="not a name") == "/name"
    added = await bench.add(slots=3, anyway=True)
    assert added.warnings == ["2 of 3 slots are reserved: no other present worker matches"]
    with pytest.raises(Conflict):
        await bench.add(name="r", anyway=True)
    assert await refused(name="second", start_at=START, end_at=at(1)) == "/slots", "not at another's expense"
    assert (await bench.add(name="before", start_at=START, end_at=NOON)).warnings == []
    assert [r.name for r in (await reservation_views.list_reservations(database, tenant=1)).items] == ["before", "r"]
    assert (await reservation_views.list_reservations(database, tenant=2)).items == []
    with pytest.raises(NotFound):
        await reservations.delete(database, "r", tenant=2, by="test")
    await bench.travel(at(600))
    assert (await bench.add(name="r", start_at=at(700), end_at=at(800))).places, "the name is free when it is over"


async def test_what_may_last_into_the_window_is_named(bench: ReservationBench) -> None:
    (first, second) = await bench.fleet.submit(await bench.fleet.job("slow", timeout="1h"), 2)
    assert sorted(await bench.poll()) == sorted([first, second])
    added = await bench.add(slots=1)
    assert len(added.warnings) == 1 and "may last until" in added.warnings[0]
