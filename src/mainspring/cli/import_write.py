"""Writes imported jobs and workflows through the API: creates them, or finds that they exist unchanged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.cli.import_report import Action
from mainspring.display.definitions import merge_patch
from mainspring.domain.errors import NotFound
from mainspring.domain.job import JobSpec
from mainspring.domain.workflow.spec import WorkflowSpec

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

Spec = JobSpec | WorkflowSpec
_AT_ONCE = 8


async def decide(client: AsyncClient, specs: Sequence[Spec], *, replace: bool) -> dict[str, Action]:
    """What to do with each definition, by name; nothing is written."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(spec: Spec) -> tuple[str, Action]:
        async with gate:
            return spec.name, await _decide(client, spec, replace=replace)

    return dict(await asyncio.gather(*(one(spec) for spec in specs)))


async def write(client: AsyncClient, specs: Sequence[Spec], actions: dict[str, Action], *, paused: bool) -> None:
    """Create and change definitions, in the order of the source."""
    for spec in specs:
        action = actions[spec.name]
        if paused and action.verb == "created":
            spec = msgspec.structs.replace(spec, paused=True)
        if action.verb == "unchanged":
            continue
        if isinstance(spec, WorkflowSpec):
            await client.apply_workflow(spec)
        elif action.verb == "created":
            await client.create_job(spec)
        else:
            await client.patch_job(spec.name, action.patch)


def conflicts_of(actions: dict[str, Action]) -> list[str]:
    return [name for name, action in actions.items() if action.verb == "conflict"]


async def _decide(client: AsyncClient, spec: Spec, *, replace: bool) -> Action:
    try:
        job = await client.job(spec.name)
    except NotFound:
        return Action("created")
    found: Spec = job.spec
    if isinstance(spec, WorkflowSpec) or job.spec.kind == "workflow":
        if not (isinstance(spec, WorkflowSpec) and job.spec.kind == "workflow"):
            return Action("conflict", {"task": None})  # a job and a workflow cannot replace one another
        found = (await client.workflow(spec.name)).spec
    patch = merge_patch(_values(found), _values(spec))
    # Pausing and resuming is up to the users of the job.
    patch.pop("paused", None)
    if not patch:
        return Action("unchanged")
    return Action("changed" if replace else "conflict", patch)


def _values(spec: Spec) -> dict[str, Any]:
    values = msgspec.to_builtins(spec)
    assert isinstance(values, dict)
    return values
