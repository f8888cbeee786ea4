"""A workflow as YAML: written, checked with line and column, looked at as a graph and as a change, then applied."""

from __future__ import annotations

import difflib
import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from itertools import zip_longest

import msgspec
from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.codec import decode, encode
from mainspring.domain.errors import Conflict, Invalid, NotFound, invalid
from mainspring.domain.workflow.spec import WorkflowSpec
from mainspring.intake import workflows as intake
from mainspring.manifest import read_workflows, write_workflow
from mainspring.views import schedules as schedule_views
from mainspring.views import workflows as workflow_views
from mainspring.web import render
from mainspring.web.access import Visit
from mainspring.web.draw.dag import Drawing, draw, of_workflow
from mainspring.web.draw.diff import Line
from mainspring.web.forms.definition import problems_of
from mainspring.web.forms.examples import EXAMPLES
from mainspring.web.forms.schedule_edit import seen_version
from mainspring.web.forms.yaml_location import Place, place

AROUND = 3


@dataclass(frozen=True, slots=True)
class Outlook:
    """What applying would do. `digest` says of which text."""

    spec: WorkflowSpec
    digest: str
    drawing: Drawing | None
    lines: list[Line] = field(default_factory=list)
    description: str = ""
    fires: list[tuple[datetime | None, datetime | None]] = field(default_factory=list)


@dataclass(slots=True)
class Manuscript:
    """One showing of the form."""

    text: str
    flow: wire.Workflow | None = None
    places: list[Place] = field(default_factory=list)
    outlook: Outlook | None = None
    theirs: list[Line] = field(default_factory=list)
    notice: str = ""
    status: int = 200

    @property
    def seen(self) -> int:
        return self.flow.version if self.flow is not None else 0


async def fresh(visit: Visit) -> Response:
    """GET /workflows/new; `example` names one to begin with, `like` a workflow."""
    text = EXAMPLES.get(visit.query("example"), "")
    if like := visit.query("like"):
        flow = await workflow_views.get(visit.context.database, like, tenant=visit.caller.tenant)
        text = write_workflow(msgspec.structs.replace(flow.spec, name=f"{flow.name}-copy"[:128]))
    return _page(visit, Manuscript(text))


async def create(visit: Visit) -> Response:
    """POST /workflows/new."""
    return await _answer(visit, Manuscript(_text(visit)))


async def edit(visit: Visit) -> Response:
    """GET /workflows/{ref}/edit."""
    flow = await _flow(visit)
    return _page(visit, Manuscript(write_workflow(flow.spec), flow))


async def save(visit: Visit) -> Response:
    """POST /workflows/{ref}/edit."""
    flow, seen = await _flow(visit), seen_version(visit)
    script = Manuscript(_text(visit), flow)
    if seen != flow.version:
        before = await jobs_version(visit, flow, seen)
        script.theirs = _difference(before, flow.spec) if before is not None else []
        script.notice = f"the workflow has version {flow.version} by now; this change was made for version {seen}"
        script.status = 409
    return await _answer(visit, script)


async def _answer(visit: Visit, script: Manuscript) -> Response:
    """What it would do; once that was seen, it is done."""
    try:
        script.outlook = await _outlook(visit, script)
        looked = visit.form.get("do") == "save" and visit.form.get("looked") == script.outlook.digest
        if looked and not script.notice:
            found, _ = await intake.apply(
                visit.context.database,
                script.outlook.spec,
                tenant=visit.caller.tenant,
                by=visit.caller.name,
                seen=script.seen,
                may_exceed=visit.caller.may_exceed,
            )
            return RedirectResponse(f"/workflows/{found.job_id}", 303, render.HEADERS)
    except Invalid as error:
        script.places, script.status = [place(script.text, p) for p in problems_of(error)], 422
    except Conflict as error:
        script.places, script.status = [place(script.text, p) for p in problems_of(error)], 409
    return _page(visit, script)


async def _outlook(visit: Visit, script: Manuscript) -> Outlook:
    specs = read_workflows(script.text)
    if len(specs) != 1:
        raise invalid("", f"there are {len(specs)} workflows here", hint="write one at a time")
    # As from the API: what the database can't hold is refused with a pointer.
    spec, flow = decode(encode(specs[0]), WorkflowSpec), script.flow
    if flow is not None and spec.name != flow.name:
        raise invalid("/name", f"this is the workflow {flow.name!r}", hint="add a workflow of another name instead")
    order = await intake.check(spec)
    digest = hashlib.sha256(encode([script.seen, spec])).hexdigest()[:16]
    description, fires = await _fires(visit, spec, flow)
    lines = _difference(flow.spec, spec) if flow is not None else []
    return Outlook(spec, digest, draw(of_workflow(spec, order), render.now()), lines, description, fires)


async def _fires(
    visit: Visit, spec: WorkflowSpec, flow: wire.Workflow | None
) -> tuple[str, list[tuple[datetime | None, datetime | None]]]:
    database, tenant = visit.context.database, visit.caller.tenant
    before: list[datetime] = []
    if flow is not None and flow.spec.schedule is not None:
        old = wire.PreviewRequest(schedule=flow.spec.schedule, job=flow.name)
        before = [] if flow.next_fire_at is None else (await schedule_views.preview(database, old, tenant=tenant)).fires
    if spec.schedule is None:
        return "on demand", [(at, None) for at in before]
    asked = wire.PreviewRequest(schedule=spec.schedule, job=spec.name)
    preview = await schedule_views.preview(database, asked, tenant=tenant)
    return preview.description, list(zip_longest(before, preview.fires))


async def jobs_version(visit: Visit, flow: wire.Workflow, seen: int) -> WorkflowSpec | None:
    """The definition that the form was made for, if it is still known."""
    return await workflow_views.spec_of_version(visit.context.database, flow.job_id, seen, tenant=visit.caller.tenant)


def _difference(old: WorkflowSpec, new: WorkflowSpec) -> list[Line]:
    """By the YAML of both, written in the same way."""
    before, after = (write_workflow(msgspec.structs.replace(spec, paused=False)).splitlines() for spec in (old, new))
    lines = list(difflib.unified_diff(before, after, lineterm="", n=AROUND))[2:]
    return [Line("…", "") if line.startswith("@@") else Line(line[0], line[1:]) for line in lines][1:]  # type: ignore[arg-type]


def _text(visit: Visit) -> str:
    return visit.form.get("text", "").replace("\r\n", "\n")


async def _flow(visit: Visit) -> wire.Workflow:
    flow = await workflow_views.get(visit.context.database, visit.ref, tenant=visit.caller.tenant)
    if flow.state == "deleted":
        raise NotFound(f"the workflow {flow.name!r} is deleted")
    return flow


def _page(visit: Visit, script: Manuscript) -> Response:
    return render.page(
        "flow_form.html",
        visit.caller,
        status=script.status,
        script=script,
        flow=script.flow,
        outlook=script.outlook,
        examples=list(EXAMPLES),
    )
