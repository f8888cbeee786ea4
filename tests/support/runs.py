"""Runs driven by hand: a worker that claims whatever is queued and ends it as the test says."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import msgspec

from mainspring import wire
from mainspring.announce import Announcer
from mainspring.domain.errors import Conflict, Unavailable
from mainspring.domain.settlement import AttemptResult
from mainspring.domain.workflow.spec import WorkflowSpec
from mainspring.duties.workflow_timers import WorkflowTimers
from mainspring.intake import runs as run_actions
from mainspring.intake import workflows
from mainspring.intake.runs import RunTransactions
from mainspring.results.batch import Report
from mainspring.results.settle import Settler
from mainspring.store import claims, fires, runs, sessions
from mainspring.store.db import CONFLICTS, Database
from mainspring.store.definitions import Definitions
from tests.support.silent_bus import SilentBus

TENANT = 1
NOOP = {"kind": "noop"}
Ends = Callable[[str], str]


def spec(name: str, steps: dict[str, Any], **more: Any) -> WorkflowSpec:
    """A workflow; a step without a kind does nothing, and is not tried again."""
    kinds = {"task", "workflow", "approval", "event", "wait"}
    filled = {n: s if kinds & s.keys() else {"task": NOOP, **s} for n, s in steps.items()}
    return msgspec.convert({"name": name, "steps": filled, "defaults": {"retries": {"max": 0}}, **more}, WorkflowSpec)


class RunBench:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.definitions = Definitions(database)
        self.settler = Settler(database, self.definitions, Announcer(SilentBus()), rng=random.Random(1))
        self.runs = RunTransactions(database)
        self.run_views = self.runs.views
        self.timers = WorkflowTimers(database)
        self.session_id: UUID | None = None
        self.log: list[str] = []  # steps as they were started

    async def apply(self, name: str, steps: dict[str, Any], **more: Any) -> wire.Workflow:
        found, _ = await workflows.apply(self.database, spec(name, steps, **more), tenant=TENANT, by="test")
        return found

    async def start(self, name: str, params: dict[str, Any] | None = None) -> wire.Run:
        return await run_actions.start(self.runs, name, wire.RunRequest(params=params), tenant=TENANT, by="test")

    async def begin(self, name: str, steps: dict[str, Any], **more: Any) -> wire.Run:
        await self.apply(name, steps, **more)
        return await self.start(name)

    async def get(self, run: wire.Run | UUID, *, items: bool = False) -> wire.Run:
        run_id = run if isinstance(run, UUID) else run.run_id
        return await self.run_views.get(run_id, tenant=TENANT, items=items)

    async def session(self) -> UUID:
        if self.session_id is None:
            self.session_id = uuid4()
            register = wire.Register(
                name="w", host="h", version="1", slots=10_000, queues=["short", "long"], kinds=["noop"]
            )
            async with self.database.connection() as connection:
                await sessions.insert_session(
                    connection,
                    tenant=TENANT,
                    session_id=self.session_id,
                    worker_id=uuid4(),
                    lease_s=86400.0 * 30,
                    register=register,
                )
        return self.session_id

    async def claim(self, most: int = 10_000) -> list[tuple[str, Any]]:
        """What is queued, by step: its name is the end of its definition's."""
        session = await self.session()
        async with self.database.connection() as connection:
            ours, _ = await runs.workflow_lines(connection)  # no worker executes these
            queued = set(await claims.queued_lines(connection, limit=1000)) - ours
            found = await claims.peek(connection, lines=[(line, claims.LINE_START, most) for line in queued])
            ids = [execution for rows in found.values() for _, execution in sorted(rows)][:most]
            rows = (
                await claims.start_matched(connection, matched=[(execution, session) for execution in ids])
                if ids
                else []
            )
        known = await self.definitions.get({(r["job_id"], r["version"]) for r in rows})
        named = [(known[r["job_id"], r["version"]].name.rpartition(".")[2], r) for r in rows]
        self.log += [name for name, _ in named]
        return named

    async def end(
        self,
        rows: list[tuple[str, Any]],
        ends: Callable[[str], str] | None = None,
        results: dict[str, Any] | None = None,
    ) -> None:
        session = await self.session()
        ended = [
            AttemptResult(
                r["execution_id"],
                r["attempt"],
                session,
                ends(name) if ends else "succeeded",  # type: ignore[arg-type]
                1,
                result=_result(results, name, r),
            )
            for name, r in rows
        ]
        await self.settler.settle(Report(session, ended))

    async def work(self, ends: Ends | None = None, results: dict[str, Any] | None = None, *, rounds: int = 200) -> None:
        """Executes whatever is queued until nothing is; runs that wait to begin do."""
        for _ in range(rounds):
            await self.timers.run_due()
            rows = await self.claim()
            if not rows:
                return
            await self.end(rows, ends, results)
        raise AssertionError(f"still something queued after {rounds} rounds")

    async def promote(self) -> None:
        async with self.database.connection() as connection:
            await fires.promote_waiting(connection, shards=range(64), limit=1000)


def _result(results: dict[str, Any] | None, name: str, row: Any) -> Any:
    found = (results or {}).get(name)
    return found(row) if callable(found) else found


def states(run: wire.Run) -> dict[str, str]:
    return {step.name: step.state for step in run.steps if step.item is None}


NOT_NOW: tuple[type[BaseException], ...] = (Conflict, Unavailable, *CONFLICTS)
"""Somebody else was first, or two met: nothing was changed."""
