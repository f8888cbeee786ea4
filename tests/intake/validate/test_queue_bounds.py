"""A queue bounds how long an attempt may take: what asks for more is refused, unless its writer has the right."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mainspring.domain.errors import Invalid
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.workflow.spec import WorkflowSpec
from mainspring.intake import jobs, queues, workflows
from mainspring.store.db import Database
from mainspring.store.definitions import Definitions

TENANT = 1


def spec(name: str, **more: Any) -> JobSpec:
    return JobSpec(name=name, task=NoopTask(), **{"queue": "bounded", **more})


@pytest.fixture
async def bounded(fresh: Database) -> Database:
    """A database in which the queue `bounded` allows ten minutes."""
    await queues.change(fresh, "bounded", {"max_duration_s": 600.0}, tenant=TENANT, by="test")
    return fresh


async def test_more_than_the_bound_is_refused_with_what_to_do(bounded: Database) -> None:
    with pytest.raises(Invalid) as refused:
        await jobs.create(bounded, spec("long", timeout="2h"), tenant=TENANT, by="test")
    (problem,) = refused.value.problems
    assert (refused.value.code, problem.pointer) == ("max_duration", "/timeout")
    assert "bounded" in problem.message and "10m" in problem.message and "2h" in problem.message
    assert "'exceed'" in problem.hint
    for number, timeout in enumerate((None, "10m", "PT5M")):
        await jobs.create(bounded, spec(f"fine-{number}", timeout=timeout), tenant=TENANT, by="test")
    await jobs.create(bounded, spec("elsewhere", timeout="2h", queue="long"), tenant=TENANT, by="test")


async def test_an_edit_asks_only_about_what_it_changes(bounded: Database) -> None:
    job_id = await jobs.create(bounded, spec("job", timeout="2h", queue="long"), tenant=TENANT, by="test")
    await queues.change(bounded, "long", {"max_duration_s": 60.0}, tenant=TENANT, by="test")
    await jobs.patch(bounded, job_id, {"description": "new"}, tenant=TENANT, by="test")
    for change in ({"timeout": "3h"}, {"queue": "bounded"}):
        with pytest.raises(Invalid):
            await jobs.preview_patch(bounded, job_id, change, tenant=TENANT)
        with pytest.raises(Invalid):
            await jobs.patch(bounded, job_id, change, tenant=TENANT, by="test")


async def test_a_right_once_used_stays_with_the_job_until_its_timeout_changes(bounded: Database) -> None:
    job_id = await jobs.create(bounded, spec("job", timeout="2h"), tenant=TENANT, by="boss", may_exceed=True)

    async def exceeds(version: int) -> bool:
        return (await Definitions(bounded).get([(job_id, version)]))[job_id, version].exceeds

    assert await exceeds(1)
    await jobs.patch(bounded, job_id, {"description": "new"}, tenant=TENANT, by="test")
    assert await exceeds(2), "an edit of something else takes nothing away"
    await jobs.patch(bounded, job_id, {"timeout": "5m"}, tenant=TENANT, by="test")
    assert not await exceeds(3)
    with pytest.raises(Invalid):
        await jobs.rollback(bounded, job_id, 1, tenant=TENANT, by="test")
    await jobs.rollback(bounded, job_id, 1, tenant=TENANT, by="boss", may_exceed=True)
    assert await exceeds(4)


async def test_steps_of_workflows_are_bounded_too(bounded: Database) -> None:
    def flow(**step: Any) -> WorkflowSpec:
        steps = {"a": {"task": {"kind": "noop"}, "queue": "bounded", **step}}
        return msgspec.convert({"name": "flow", "steps": steps}, WorkflowSpec)

    with pytest.raises(Invalid) as refused:
        await workflows.apply(bounded, flow(timeout="1h"), tenant=TENANT, by="test")
    assert [problem.pointer for problem in refused.value.problems] == ["/steps/a/timeout"]
    await workflows.apply(bounded, flow(), tenant=TENANT, by="test")
    await workflows.apply(bounded, flow(timeout="1h"), tenant=TENANT, by="boss", may_exceed=True)
