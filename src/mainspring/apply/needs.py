"""Dependencies in the manifests of jobs: how they change, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mainspring import wire
from mainspring.apply.changes import Plan, Requester
from mainspring.apply.problems import ProblemList
from mainspring.domain.errors import Invalid, Problem
from mainspring.domain.suggestion import closest
from mainspring.intake.dependency_changes import NeedsChange, graph_after
from mainspring.manifest import JobManifest, Manifest
from mainspring.manifest.needs import cycle_problem, cycles, needs_problems, pointer_to
from mainspring.store import jobs
from mainspring.store.db import Connection

Found = list[tuple[int, Problem]]
"""Problems, each with the number of its manifest."""


async def check_needs(
    connection: Connection,
    plan: Plan,
    problems: ProblemList,
    request: wire.ApplyManifests,
    requester: Requester,
    *,
    present: set[str],
) -> None:
    """Refuse dependencies on jobs that will not exist, invalid limits, and cycles; `present` are in the manifests."""
    changed = {c.number: found for c in plan.changes if (found := c.needs) is not None}
    wrong = _pruned(plan, request.manifests)
    if changed:
        if requester.scopes is None:  # a part of a larger diff: the parts before it are not applied yet
            present = present | {key.partition("/")[2] for key in request.keep}
        wrong += _limits({c.number: (c.manifest, c.definition) for c in plan.changes if c.number in changed})
        wrong += await _parents(connection, changed, request.manifests, tenant=requester.tenant, present=present)
    for number, problem in wrong:
        problems.add_definition(number, Invalid(problem.message, problems=(problem,)))


def _pruned(plan: Plan, documents: Sequence[Any]) -> Found:
    """Jobs that a manifest names in its needs and that pruning would delete. Others are found when they are deleted."""
    pruned = {name for kind, name in (d.key for d in plan.deletions) if kind in ("Job", "Workflow")}
    return [
        (
            change.number,
            Problem(
                pointer_to(documents[change.number], name),
                f"{name!r} is pruned by this apply",
                "keep its manifest, or remove it from needs",
            ),
        )
        for change in plan.changes
        if pruned and change.manifest.kind == "Job"
        for name in change.manifest.given.get("needs", ())
        if name in pruned
    ]


def _limits(definitions: Mapping[int, tuple[Manifest, JobManifest]]) -> Found:
    """Problems of the limits that manifests set; those that other users have set stay as they are."""
    found: Found = []
    for number, (manifest, definition) in definitions.items():
        given = {name: need for name, need in definition.needs.items() if name in manifest.given.get("needs", {})}
        found += [(number, p) for p in needs_problems(msgspec.structs.replace(definition, needs=given))]
    return found


async def _parents(
    connection: Connection,
    changes: Mapping[int, NeedsChange],
    documents: Sequence[Any],
    *,
    tenant: int,
    present: set[str],
) -> Found:
    """Problems of jobs that do not exist, and cycles."""
    found: Found = []
    wanted = sorted({name for change in changes.values() for name in change.written} - present)
    known = await jobs.find_jobs(connection, tenant=tenant, names=wanted, job_ids=[]) if wanted else {}
    for number, change in changes.items():
        for name in change.written:
            if name not in present and name not in known:
                close = closest(name, present)
                hint = f"did you mean {close!r}?" if close else "add a Job of that name, or: mainspring jobs list"
                problem = Problem(pointer_to(documents[number], name), f"there is no job {name[:200]!r}", hint)
                found.append((number, problem))
    places = {change.child: number for number, change in changes.items()}
    for cycle in cycles(await graph_after(connection, [*changes.values()], tenant=tenant)):
        for child, parent in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            if child in places and parent in changes[places[child]].added:
                number = places[child]
                found.append((number, cycle_problem(pointer_to(documents[number], parent), cycle)))
                break
    return found
