"""Limits: never exceeded by dispatchers that race, never leaked by workers that vanish."""

from __future__ import annotations

import asyncio
from itertools import accumulate
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring import wire
from mainspring.dispatch import service
from mainspring.domain.errors import Invalid
from mainspring.domain.job import JobSpec, NoopTask, check
from mainspring.domain.limit import Concurrency, Rate, StartPacing, resolve_key
from mainspring.intake.executions import cancel
from mainspring.intake.queues import change as change_queue
from mainspring.results.rescue import rescue_orphans
from mainspring.store import doctor, sessions
from mainspring.store import queues as store_queues
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from mainspring.views import executions as execution_views
from mainspring.views import queues
from tests.support.dispatchers import TENANT, Fleet, fleet

pytestmark = pytest.mark.anyio


async def race(fleet: Fleet, total: int, *, slots: int = 4) -> None:
    """Every dispatcher with two workers, until everything has run. They serve different queues: dispatchers that want
    the same execution are kept apart by its row, those that want different ones only by the key's."""

    def done() -> bool:
        return len(fleet.started) >= total

    await asyncio.gather(
        *[
            fleet.work(dispatcher, await fleet.session(slots=slots, queues=queues), done, slots=slots)
            for dispatcher in fleet.dispatchers
            for queues in (["short"], ["long", "other"])
        ]
    )
    assert len({execution for _, execution in fleet.started}) == total == len(fleet.started), "each once"
    async with fleet.database.connection() as connection:
        assert (await doctor.examine(connection)).checks["I15 limits and queue caps hold"] == "ok"


@pytest.mark.requirement(55, 77)
async def test_eight_dispatchers_never_exceed_a_key(fresh: Database) -> None:
    async with fleet(fresh, dispatchers=8) as found:
        three = Concurrency(key="shared", limit=3)
        a = await found.job("a", concurrency=three)
        b = await found.job("b", concurrency=three, queue="long")
        one = await found.job("one", concurrency=Concurrency(key="single", limit=1))
        two = await found.job("two", concurrency=Concurrency(key="single", limit=1), queue="other")
        free = await found.job("free")
        for job in (a, b, one, two, free):
            await found.submit(job, 30)
        await race(found, 150)
        assert await most_at_once(fresh, "a", "b") == 3
        assert await most_at_once(fresh, "one", "two") == 1
        assert await most_at_once(fresh, "free") > 3


async def test_eight_dispatchers_never_exceed_a_key_of_one_line(fresh: Database) -> None:
    """Alone in its line it is claimed in one statement, which counts after it has locked."""
    async with fleet(fresh, dispatchers=8) as found:
        await found.submit(await found.job("a", concurrency=Concurrency("k", 3)), 200)
        await race(found, 200)
        assert await most_at_once(fresh, "a") == 3


async def most_at_once(database: Database, *names: str) -> int:
    """How many executions of these jobs ran at the same time, from the times the database wrote."""
    async with database.connection() as connection:
        rows = await connection.fetch(
            "SELECT h.started_at, h.finished_at FROM history h JOIN jobs j USING (job_id) WHERE j.name = ANY ($1)",
            names,
        )
    # At the same instant an end comes first.
    changes = sorted([(r["started_at"], 1) for r in rows] + [(r["finished_at"], -1) for r in rows])
    return max(accumulate(change for _, change in changes))


async def test_keys_made_of_params_are_limits_of_their_own(fresh: Database) -> None:
    async with fleet(fresh, dispatchers=2) as found:
        job = await found.job("report", concurrency=Concurrency(key="report-{{params.region}}", limit=1))
        eu = await found.submit(job, 5, {"region": "eu"})
        us = await found.submit(job, 5, {"region": "us"})
        session = await found.session()
        got = set[UUID]()
        while len(got) < 2:  # the two lines may be heard of one after the other
            polled = await found.dispatchers[0].poll(wire.Poll(session_id=session, free=4, wait_s=5), tenant=TENANT)
            got |= {g.execution_id for g in polled.executions}
        assert got == {min(eu), min(us)}
        poll = wire.Poll(session_id=session, free=4, wait_s=0.2)
        assert (await found.dispatchers[0].poll(poll, tenant=TENANT)).executions == []
        seen = await queues.overview(fresh, tenant=TENANT)
        assert {(k.key, k.limit, len(k.holders)) for k in seen.limits} == {("report-eu", 1, 1), ("report-us", 1, 1)}


async def test_queue_and_tenant_caps_hold_in_a_race(fresh: Database) -> None:
    async with fleet(fresh, dispatchers=4) as found:
        await change_queue(fresh, "long", {"cap": 2}, tenant=TENANT, by="test")
        async with fresh.connection() as connection:
            await store_queues.set_tenant_share(connection, tenant=TENANT, weight=1, cap=5)
        for name in ("long", "short"):
            await found.submit(await found.job(name, queue=name), 60)
        await race(found, 120)
        assert await most_at_once(fresh, "long") == 2
        assert await most_at_once(fresh, "long", "short") == 5


async def test_a_slot_is_free_when_its_holder_is_gone(fresh: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it ends: settled, cancelled, lost with its worker."""
    async with fleet(fresh, dispatchers=1) as found:
        (dispatcher,) = found.dispatchers
        job = await found.job("one", concurrency=Concurrency(limit=1))
        ids = await found.submit(job, 3)
        ids.sort()
        first, second = await found.session(), await found.session()

        async def given(session: object) -> list[object]:
            poll = wire.Poll(session_id=session, free=4, wait_s=0.3)  # type: ignore[arg-type]
            return [g.execution_id for g in (await dispatcher.poll(poll, tenant=TENANT)).executions]

        assert await given(first) == ids[:1]
        monkeypatch.setattr(service, "SLOW_POLL_S", 3600.0)
        assert await given(second) == []
        waiting = asyncio.create_task(dispatcher.poll(wire.Poll(session_id=second, free=4, wait_s=20), tenant=TENANT))
        async with fresh.connection() as connection:  # as after kill -9: the guardian or the lease says so
            await sessions.end_session(connection, tenant=TENANT, session_id=first, lost=True)
        await rescue_orphans(fresh, found.settler)
        again = (await waiting).executions
        assert [g.execution_id for g in again] == ids[:1] and again[0].attempt == 2
        await cancel(fresh, ids[1], tenant=TENANT, by="test", reason="")
        assert (await execution_views.get(fresh, ids[1], tenant=TENANT)).state == "cancelled"
        assert await given(await found.session()) == []


@pytest.mark.requirement(84)
async def test_an_ordered_job_starts_in_order(fresh: Database) -> None:
    async with fleet(fresh, dispatchers=4) as found:
        job = await found.job("ordered", ordered=True)
        ids = [(await found.submit(job, 1))[0] for _ in range(25)]
        await found.submit(await found.job("beside"), 25)
        await race(found, 50)
        # By due time, which ids begin with; two that came in the same millisecond go by id.
        assert [execution for name, execution in found.started if name == "ordered"] == sorted(ids)
        assert await most_at_once(fresh, "ordered") == 1


async def test_a_rate_spaces_starts(fresh: Database, virtual: VirtualClock) -> None:
    """By database time, which here moves only when the test says so; two jobs share the key."""
    async with fleet(fresh, dispatchers=2) as found:
        for name in ("a", "b"):
            await found.submit(await found.job(name, rate=Rate(key="k", limit=20, per="1s", burst=2)), 3)
        sessions = [await found.session(), await found.session()]

        async def given() -> int:
            """How many start now, for all the asking."""
            polls = [
                dispatcher.poll(wire.Poll(session_id=session, free=4, wait_s=0.3), tenant=TENANT)
                for dispatcher, session in zip(found.dispatchers, sessions, strict=True)
            ]
            return sum(len(polled.executions) for polled in await asyncio.gather(*polls))

        assert await given() + await given() == 2, "the burst"
        await virtual.advance(milliseconds=49)
        assert await given() == 0
        await virtual.advance(milliseconds=1)
        assert await given() == 1
        await virtual.advance(seconds=10)
        assert await given() + await given() == 2, "a quiet time is worth a burst, not more"


@given(
    st.floats(1, 1000),
    st.integers(1, 5),
    st.lists(st.tuples(st.floats(0, 2000), st.integers(0, 5)), min_size=1, max_size=30),
)
def test_a_pace_never_lets_more_start_than_it_says(every: float, burst: int, tries: list[tuple[float, int]]) -> None:
    """In any stretch of time: as many as fit into it, and the burst."""
    now, pace, starts = 1e12, StartPacing(every, burst, None), list[float]()
    for gap, wanted in tries:
        now += gap
        n = min(wanted, pace.allowed(now))
        if n:
            pace = StartPacing(every, burst, pace.after(n, now))
            starts += [now] * n
    for i, begin in enumerate(starts):
        for j in range(i, len(starts)):
            assert j - i + 1 <= (starts[j] - begin) / every + burst + 1e-3


def test_keys() -> None:
    assert resolve_key("r-{{params.region}}-{{ job }}", job="j", params={"region": "eu"}) == "r-eu-j"
    assert resolve_key("r-{{params.region}}", job="j", params=None) == "r-"
    assert resolve_key("{{params.n}}", job="j", params={"n": 3}) == "3"


@pytest.mark.parametrize(
    ("spec", "pointer"),
    [
        ({"concurrency": Concurrency(key="a b")}, "/concurrency/key"),
        ({"concurrency": Concurrency(key="{{fire_at}}")}, "/concurrency/key"),
        ({"concurrency": Concurrency(), "ordered": True}, "/ordered"),
        ({"rate": Rate(limit=1, per="soon")}, "/rate/per"),
        ({"rate": Rate(limit=1, per=0)}, "/rate/per"),
        ({"labels": {"a b": "c"}}, "/labels/a b"),
        ({"estimated_duration": "a while"}, "/estimated_duration"),
    ],
)
def test_what_is_refused(spec: dict[str, object], pointer: str) -> None:
    with pytest.raises(Invalid) as refused:
        check(JobSpec(name=f"n-{uuid4()}", task=NoopTask(), **spec))  # type: ignore[arg-type]
    assert [problem.pointer for problem in refused.value.problems] == [pointer]
    assert all(problem.hint for problem in refused.value.problems)
