"""The editor of a workflow as YAML, with the graph and the next fires in its review."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from itertools import zip_longest
from typing import Any

import msgspec

from mainspring import wire
from mainspring.calculation import calculated
from mainspring.codec import decode, encode
from mainspring.domain.errors import NotFound, invalid
from mainspring.domain.workflow.spec import WorkflowSpec
from mainspring.intake import workflows as intake
from mainspring.manifest import workflows_in, write_workflow
from mainspring.views import schedules as schedule_views
from mainspring.views import workflows as workflow_views
from mainspring.web import render
from mainspring.web.draw.dag import Drawing, draw, of_workflow
from mainspring.web.draw.diff import DiffLine, diff_lines
from mainspring.web.endpoint import PageRequest
from mainspring.web.forms.workflow_examples import EXAMPLES
from mainspring.web.forms.yaml_editor import YamlDraft, YamlEditor
from mainspring.web.forms.yaml_keys import known_keys
from mainspring.web.forms.yaml_reading import documents_of

CONTEXT_LINES = 3
NAME_MAX = 128


@dataclass(frozen=True, slots=True)
class WorkflowReview:
    """What applying would do. `fires` pairs the current fires with the new ones."""

    spec: WorkflowSpec
    digest: str
    drawing: Drawing | None
    lines: list[DiffLine] = field(default_factory=list)
    description: str = ""
    fires: list[tuple[datetime | None, datetime | None]] = field(default_factory=list)


class WorkflowYamlEditor(YamlEditor[wire.Workflow, WorkflowReview]):
    """GET and POST /workflows/new and /workflows/{ref}/edit."""

    template = "workflow_yaml.html"
    new_path = "/workflows/new"
    list_path = "/workflows"
    edit_suffix = "edit"
    preview_template = "workflow_preview.html"

    def page_values(self) -> dict[str, Any]:
        return {"examples": list(EXAMPLES), "keys": known_keys("Workflow")}

    async def initial_text(self, request: PageRequest) -> str:
        """Return an example (`?example=`) or a copy of a workflow (`?like=`)."""
        if like := request.query("like"):
            workflow = await workflow_views.get(request.context.database, like, tenant=request.caller.tenant)
            return write_workflow(msgspec.structs.replace(workflow.spec, name=f"{workflow.name}-copy"[:NAME_MAX]))
        return EXAMPLES.get(request.query("example"), "")

    async def find(self, request: PageRequest, ref: str) -> wire.Workflow:
        workflow = await workflow_views.get(request.context.database, ref, tenant=request.caller.tenant)
        if workflow.state == "deleted":
            raise NotFound(f"the workflow {workflow.name!r} is deleted")
        return workflow

    def write(self, saved: wire.Workflow) -> str:
        return write_workflow(saved.spec)

    async def changes_since(self, request: PageRequest, saved: wire.Workflow, version: int) -> list[DiffLine]:
        before = await workflow_views.spec_of_version(
            request.context.database, saved.job_id, version, tenant=request.caller.tenant
        )
        return _difference(before, saved.spec) if before is not None else []

    async def review(self, request: PageRequest, draft: YamlDraft[wire.Workflow, WorkflowReview]) -> WorkflowReview:
        specs = workflows_in(await documents_of(draft.text))
        if len(specs) != 1:
            raise invalid("", f"the text has {len(specs)} workflows", hint="write exactly one")
        # Encoded and decoded like a request to the API, which refuses what the database can't store.
        spec, saved = decode(encode(specs[0]), WorkflowSpec), draft.saved
        if saved is not None and spec.name != saved.name:
            raise invalid("/name", f"a workflow can't be renamed: this is {saved.name!r}", hint="add a new workflow")
        order = await intake.check(spec)
        digest = hashlib.sha256(encode([draft.version, spec])).hexdigest()[:16]
        description, fires = await _fires(request, spec, saved)
        lines = _difference(saved.spec, spec) if saved is not None else []
        drawing = await calculated(draw, of_workflow(spec, order), render.now())
        return WorkflowReview(spec, digest, drawing, lines, description, fires)

    async def apply(
        self, request: PageRequest, draft: YamlDraft[wire.Workflow, WorkflowReview], review: WorkflowReview
    ) -> str:
        found, _ = await intake.apply(
            request.context.database,
            review.spec,
            tenant=request.caller.tenant,
            by=request.caller.name,
            seen=draft.version,
            may_exceed=request.caller.may_exceed,
        )
        return f"/workflows/{found.job_id}"


async def _fires(
    request: PageRequest, spec: WorkflowSpec, saved: wire.Workflow | None
) -> tuple[str, list[tuple[datetime | None, datetime | None]]]:
    database, tenant = request.context.database, request.caller.tenant
    before: list[datetime] = []
    if saved is not None and saved.spec.schedule is not None:
        old = wire.PreviewRequest(schedule=saved.spec.schedule, job=saved.name)
        before = (
            [] if saved.next_fire_at is None else (await schedule_views.preview(database, old, tenant=tenant)).fires
        )
    if spec.schedule is None:
        return "on demand", [(at, None) for at in before]
    wanted = wire.PreviewRequest(schedule=spec.schedule, job=spec.name)
    preview = await schedule_views.preview(database, wanted, tenant=tenant)
    return preview.description, list(zip_longest(before, preview.fires))


def _difference(old: WorkflowSpec, new: WorkflowSpec) -> list[DiffLine]:
    """Compare the YAML of both, written in the same way."""
    before, after = (write_workflow(msgspec.structs.replace(spec, paused=False)).splitlines() for spec in (old, new))
    return diff_lines(before, after, context=CONTEXT_LINES)


EDITOR = WorkflowYamlEditor()
