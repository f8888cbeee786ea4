"""Dependencies between jobs in manifests: planned, written, pruned and exported with their jobs."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import Conflict, Invalid, NotFound
from mainspring.domain.execution import FINAL
from tests.conftest import Cluster
from tests.support.manifests import actions, applied, compared, counts, job, manifest
from tests.support.processes import until_async

pytestmark = pytest.mark.anyio


@pytest.fixture
def tag() -> str:
    return uuid4().hex[:8]


async def needed(client: AsyncClient, name: str) -> dict[str, tuple[float | None, float | None]]:
    """The jobs that a job needs, with timeout and wait."""
    return {one.job: (one.timeout_s, one.wait_s) for one in (await client.needs(name)).needs}


def fields(plan: wire.ManifestPlan) -> dict[str, list[tuple[str, Any, Any]]]:
    return {change.name: [(f.path, f.old, f.new) for f in change.fields] for change in plan.changes}


async def refused(client: AsyncClient, *manifests: dict[str, Any], **more: Any) -> list[tuple[str, str]]:
    """The pointers and messages with which diff and apply refuse manifests; nothing is written."""
    with pytest.raises(Invalid) as compared_:
        await compared(client, *manifests, **more)
    with pytest.raises(Invalid) as applied_:
        await applied(client, *manifests, **more)
    assert compared_.value.problems == applied_.value.problems
    return [(problem.pointer, problem.message) for problem in applied_.value.problems]


@pytest.mark.requirement(124)
async def test_a_job_and_its_parents_are_applied_together_in_any_order(client: AsyncClient, tag: str) -> None:
    report, load, clean = f"a-report-{tag}", f"load-{tag}", f"m-clean-{tag}"
    manifests = [
        job(report, needs={load: {"timeout": "PT6H"}, clean: {}}),
        job(clean, needs=[load]),
        job(load),
    ]
    plan = await compared(client, *manifests, owner=tag)
    assert counts(plan) == (3, 0, 0, 0)
    assert fields(plan)[report] == [(f"needs.{load}", None, {"timeout": "6h"}), (f"needs.{clean}", None, {})]
    assert counts(await applied(client, *manifests, owner=tag)) == (3, 0, 0, 0)
    assert await needed(client, report) == {load: (21600.0, None), clean: (None, None)}
    assert await needed(client, clean) == {load: (None, None)}
    assert counts(await applied(client, *manifests, owner=tag)) == (0, 0, 0, 3)
    assert (await client.job(report)).version == 1
    assert counts(await applied(client, owner=tag, prune=True)) == (0, 0, 3, 0), "children are deleted before parents"


async def test_a_plan_shows_added_changed_and_removed_edges_and_writes_no_version(
    client: AsyncClient, tag: str
) -> None:
    a, b, c, report = (f"{name}-{tag}" for name in ("a", "b", "c", "report"))
    parents = [job(a), job(b), job(c)]
    await applied(client, *parents, job(report, needs={a: {}, b: {"timeout": 60}}))
    plan = await applied(client, *parents, job(report, needs={b: {"timeout": "2h"}, c: {}}))
    assert fields(plan)[report] == [
        (f"needs.{a}", {}, None),
        (f"needs.{b}", {"timeout": "1m"}, {"timeout": "2h"}),
        (f"needs.{c}", None, {}),
    ]
    assert await needed(client, report) == {b: (7200.0, None), c: (None, None)}
    assert (await client.job(report)).version == 1
    entries = (await client.audit(subject=str((await client.job(report)).job_id))).items
    found = [(entry.action, (entry.details or {}).get("parent")) for entry in reversed(entries)]
    assert found == [
        ("job.create", None),
        *[("job.need", a), ("job.need", b)],
        *[("job.need", b), ("job.need", c), ("job.unneed", a)],
    ]
    plan = await applied(client, *parents, job(report, priority=7))
    assert {path for path, _, _ in fields(plan)[report]} == {f"needs.{b}", f"needs.{c}", "priority"}
    assert await needed(client, report) == {}
    assert (await client.job(report)).version == 2


async def test_edges_of_other_users_stay_and_are_named(client: AsyncClient, tag: str) -> None:
    a, b, report = (f"{name}-{tag}" for name in ("a", "b", "report"))
    manifests = [job(a), job(b), job(report, needs=[a])]
    await applied(client, *manifests)
    await client.add_need(report, b, timeout="1h")
    plan = await compared(client, *manifests)
    assert counts(plan) == (0, 0, 0, 3)
    assert [(d.path, d.live, d.kept) for d in plan.changes[0].drift] == [(f"needs.{b}", {"timeout": "1h"}, True)]
    await applied(client, *manifests)
    assert set(await needed(client, report)) == {a, b}
    await client.remove_need(report, a)
    plan = await applied(client, *manifests)
    assert fields(plan) == {report: [(f"needs.{a}", None, {})]}
    assert set(await needed(client, report)) == {a, b}


@pytest.mark.requirement(124)
async def test_unknown_jobs_cycles_and_invalid_limits_are_refused_where_they_stand(
    client: AsyncClient, tag: str
) -> None:
    a, b, c = (f"{name}-{tag}" for name in "abc")
    assert await refused(client, job(a, needs=[b, c]), job(b)) == [
        ("/manifests/0/spec/needs/1", f"there is no job {c!r}")
    ]
    ((pointer, message),) = await refused(client, job(a, needs=[b]), job(b, needs={c: {}}), job(c, needs=[a]))
    assert (pointer, message) == ("/manifests/0/spec/needs/0", f"a cycle: {c} → {b} → {a} → {c}")
    assert await refused(client, job(a, needs=[a])) == [("/manifests/0/spec/needs/0", f"a cycle: {a} → {a}")]
    assert await refused(client, job(a), job(b, needs={a: {"wait": "1h", "timeout": "soon"}})) == [
        (f"/manifests/1/spec/needs/{a}/timeout", refused_duration()),
        (f"/manifests/1/spec/needs/{a}/wait", f"{b} has no schedule, so `wait` does not apply"),
    ]
    (shape,) = await refused(client, job(a, needs=[{"job": b}]))
    assert shape[0] == "/manifests/0/spec/needs/0"
    (unknown,) = await refused(client, job(a, needs={b: {"timeot": 1}}), job(b))
    assert unknown[0] == f"/manifests/0/spec/needs/{b}/timeot"
    once = job(a, needs=[b], schedule={"at": "2040-01-01T00:00:00Z"})
    assert await refused(client, once, job(b)) == [
        ("/manifests/0/spec/schedule", "a job that needs others can't have a one-time schedule")
    ]
    with pytest.raises(NotFound):
        await client.job(b)


def refused_duration() -> str:
    return (
        "'soon' is not a duration: write seconds (90), units from large to small (1h30m, 10m, 500ms) or ISO 8601 (PT3H)"
    )


async def test_a_cycle_through_jobs_that_are_not_in_the_manifests_is_refused(client: AsyncClient, tag: str) -> None:
    a, b, c = (f"{name}-{tag}" for name in "abc")
    await applied(client, job(a), job(b, needs=[a]), job(c, needs=[b]))
    assert await refused(client, job(a, needs=[c])) == [
        ("/manifests/0/spec/needs/0", f"a cycle: {a} → {b} → {c} → {a}")
    ]
    # Turning the edges around in one apply is none.
    await applied(client, job(a, needs=[b]), job(b, needs=[c]), job(c, needs=[]))
    assert [set(await needed(client, name)) for name in (a, b, c)] == [{b}, {c}, set()]


async def test_a_parent_is_pruned_only_if_nothing_needs_it(client: AsyncClient, tag: str) -> None:
    load, report, other = (f"{name}-{tag}" for name in ("load", "report", "other"))
    await applied(client, job(load), job(report, needs=[load]), owner=tag)
    assert await refused(client, job(report, needs=[load]), owner=tag, prune=True) == [
        ("/manifests/0/spec/needs/0", f"{load!r} is pruned by this apply")
    ]
    await applied(client, job(other, needs=[load]), owner=f"{tag}-other")
    with pytest.raises(Conflict, match=f"needed by {other}") as error:
        await applied(client, job(report), owner=tag, prune=True)
    assert error.value.code == "needed"
    assert set(await needed(client, report)) == {load}, "all or nothing"
    await applied(client, job(other), owner=f"{tag}-other")
    plan = await applied(client, job(report), owner=tag, prune=True)
    assert actions(plan) == [f"change Job/{report}", f"delete Job/{load}"]
    assert await needed(client, report) == {}


async def test_export_writes_what_diff_finds_equal(client: AsyncClient, tag: str) -> None:
    a, b, c = (f"{name}-{tag}" for name in "abc")
    every = {"every": 60}
    await applied(client, job(a), job(b, needs=[a]), job(c, needs={a: {"wait": 90}, b: {}}, schedule=every), owner=tag)
    written = {name: (await client.manifests("Job", name=name)).items[0].spec.get("needs") for name in (a, b, c)}
    assert written == {a: None, b: [a], c: {a: {"wait": "1m30s"}, b: {}}}
    page = await client.manifests("Job", limit=500)
    mine = [manifest("Job", d.metadata["name"], **d.spec) for d in page.items if d.metadata["name"].endswith(tag)]
    assert len(mine) == 3
    assert counts(await compared(client, *mine, owner=tag)) == (0, 0, 0, 3)


async def test_an_edge_of_a_manifest_is_obeyed(cluster: Cluster, client: AsyncClient, tag: str) -> None:
    """The success of a parent executes its child; a fire waits for its parent and is released with the edge."""
    load, report = f"load-{tag}", f"report-{tag}"
    await applied(client, job(load), job(report, needs=[load]))
    assert (await client.job(report)).spec.schedule is None
    async with cluster.worker():
        ended = await client.wait((await client.trigger(load)).execution_id, timeout_s=30)
        assert ended.state == "succeeded"

        async def is_executed() -> bool:
            return bool((await client.history(report)).items)

        await until_async("the execution of the child", is_executed, within_s=30)
        (found,) = (await client.history(report)).items
        assert found.created_by == f"after {load}"
        assert (await client.wait(found.execution_id, timeout_s=30)).state in FINAL


async def test_concurrent_applies_never_complete_a_cycle(client: AsyncClient, tag: str) -> None:
    names = [f"{number}-{tag}" for number in range(4)]
    await applied(client, *map(job, names))
    turns = [applied(client, job(name, needs=[names[(n + 1) % 4]])) for n, name in enumerate(names)]
    ended = await asyncio.gather(*turns, return_exceptions=True)
    assert sum(isinstance(one, Invalid) for one in ended) == 1, ended
    assert sum(isinstance(one, wire.ManifestPlan) for one in ended) == 3
    assert sum([len(await needed(client, name)) for name in names]) == 3
