"""An eviction checks the urgent execution and all its victims in one statement: all or none."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest

from mainspring.store import evictions
from tests.support.settling import TENANT, SettlingBench


@dataclass
class Scene:
    """A running preemptible victim and a queued urgent execution."""

    bench: SettlingBench
    victim: UUID
    session: UUID
    urgent: UUID

    async def evict(
        self,
        *,
        tenant: int = TENANT,
        urgent: tuple[UUID, int] | None = None,
        session: UUID | None = None,
        victims: list[tuple[UUID, int]] | None = None,
    ) -> bool:
        async with self.bench.database.transaction() as connection:
            return await evictions.evict(
                connection,
                tenant=tenant,
                urgent=urgent or (self.urgent, 0),
                session_id=session or self.session,
                victims=victims or [(self.victim, 1)],
            )


@pytest.fixture
async def scene(bench: SettlingBench) -> Scene:
    victim, session = await bench.started(preemptible=True, priority=1)
    urgent = await bench.submit(await bench.job(priority=9))
    return Scene(bench, victim, session, urgent)


async def test_an_urgent_execution_evicts_once(scene: Scene) -> None:
    assert await scene.evict()
    assert not await scene.evict(), "it has preempted already"
    async with scene.bench.database.connection() as connection:
        found = await evictions.session_preempts(connection, tenant=TENANT, session_id=scene.session)
        assert found == [(scene.victim, 1)]
        assert await evictions.session_preempts(connection, tenant=TENANT + 1, session_id=scene.session) == []
        (running,) = await evictions.running_attempts(connection, session_ids=[scene.session])
        assert (running.leaving, running.evicted) == (True, 1)


async def test_every_outdated_assumption_prevents_it(scene: Scene) -> None:
    assert not await scene.evict(tenant=TENANT + 1)
    assert not await scene.evict(urgent=(scene.urgent, 1)), "another attempt"
    assert not await scene.evict(urgent=(scene.victim, 1)), "not queued"
    assert not await scene.evict(session=uuid4()), "another session"
    assert not await scene.evict(victims=[(scene.victim, 2)]), "another attempt"
    assert not await scene.evict(victims=[(scene.victim, 1), (uuid4(), 1)]), "all or none"
    async with scene.bench.database.connection() as connection:
        await connection.execute("UPDATE executions SET cancel_at = db_now() WHERE execution_id = $1", scene.victim)
    assert not await scene.evict(), "it is being cancelled"
    async with scene.bench.database.connection() as connection:
        await connection.execute("UPDATE executions SET cancel_at = NULL WHERE execution_id = $1", scene.victim)
    assert await scene.evict()


@pytest.mark.parametrize("spec", [{"preemptible": False, "priority": 1}, {"preemptible": True, "priority": 9}])
async def test_a_victim_must_be_preemptible_and_of_lower_priority(
    bench: SettlingBench, spec: dict[str, object]
) -> None:
    victim, session = await bench.started(**spec)
    urgent = await bench.submit(await bench.job(priority=9))
    assert not await Scene(bench, victim, session, urgent).evict()
