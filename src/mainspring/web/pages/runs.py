"""The page of a run: its steps as a graph, a grid over the latest runs, or a Gantt chart; live while it runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import msgspec
from starlette.responses import Response

from mainspring import wire
from mainspring.calculation import calculated
from mainspring.intake.runs import StepRights
from mainspring.store.charts import ExecutionTimes, StepCell
from mainspring.views.runs import parse_run_id
from mainspring.web.draw.dag import BY_CONCERN, STEP_STYLES, Drawing, draw, of_run, state_of
from mainspring.web.draw.gantt import GanttChart, gantt_chart
from mainspring.web.endpoint import PageRequest
from mainspring.web.pages.run_panel import StepPanel, rights_in, step_panel
from mainspring.web.render import fragment, now, page

LAYOUTS = ("graph", "grid", "gantt")
STEPS_SHOWN = 100
GRID_RUNS = 25
REFRESH_S = 3.0
MAX_STEPS_DRAWN = 1000
MAX_DURATIONS = 300
"""Steps of a graph whose durations are read from history; larger graphs are drawn without them."""
"""The graph of a larger run is not part of the page: the stream sends it, or the page links to it."""
REST_FACTOR = 4
"""After a read the stream pauses for this multiple of its duration, so that a large run does not load the server."""


@dataclass(frozen=True, slots=True)
class RunView:
    """The part of a run that the address selects."""

    show: str = "graph"
    opened: tuple[str, ...] = ()
    state: str = ""
    find: str = ""
    step: str = ""
    number: int = 0
    draw: str = ""
    panel: str = ""

    @classmethod
    def of(cls, request: PageRequest) -> RunView:
        show, state, number = request.query("show"), request.query("state"), request.query("page")
        return cls(
            show if show in LAYOUTS else LAYOUTS[0],
            tuple(request.http.query_params.getlist("open")[-8:]),
            state if state in STEP_STYLES else "",
            request.query("find")[:100],
            request.query("step")[:100],
            int(number) if number.isascii() and number.isdigit() and len(number) < 7 else 0,
            "yes" if request.query("draw") else "",
            request.query("panel")[:100],
        )

    def address(self, **changes: Any) -> str:
        """Return the query of this view with some values changed; defaults are left out."""
        values = {
            "show": self.show, "open": self.opened, "state": self.state, "find": self.find, "step": self.step,
            "page": self.number, "draw": self.draw, "panel": self.panel, **changes,
        }  # fmt: skip
        kept = {name: value for name, value in values.items() if value and (name, value) != ("show", LAYOUTS[0])}
        return "?" + urlencode(kept, doseq=True)


@dataclass(frozen=True, slots=True)
class RunDetails:
    """A run as one page shows it. `matching` counts the steps that match the view; `rows` are on this page.

    `later`: the run is so large that the stream sends its graph.
    """

    run: wire.Run
    view: RunView
    tally: list[tuple[str, int]]
    rows: Sequence[wire.RunStep]
    matching: int
    gantt: GanttChart
    drawing: Drawing | None = None
    later: bool = False
    panel: StepPanel | None = None
    runs: Sequence[wire.Run] = ()
    cells: dict[tuple[UUID, str], StepCell] = field(default_factory=dict)
    rights: dict[str, StepRights] = field(default_factory=dict)
    """Of the approvals shown: which decisions the reader may make."""


async def run(request: PageRequest) -> Response:
    """GET /runs/{ref}."""
    seen = await read_run(request, parse_run_id(request.ref), RunView.of(request))
    later = "yes" if seen.later else ""
    stream = f"/ui/stream{seen.view.address(view='run', run=str(seen.run.run_id), later=later)}"
    return page("run.html", request.caller, seen=seen, styles=STEP_STYLES, state_of=state_of, stream=stream)


async def read_run(request: PageRequest, run_id: UUID, view: RunView, *, whole: bool = False) -> RunDetails:
    """Read what the view shows. `whole`: with the graph, no matter how large."""
    runs, tenant = request.context.run_views, request.caller.tenant
    glance = await runs.step_states(run_id, tenant=tenant, step=view.step)
    found = glance.run
    matching = [p for p, name, state in glance.steps if view.state in ("", state) and view.find in name]
    rows = await runs.steps_by_ref(
        found, matching[view.number * STEPS_SHOWN : (view.number + 1) * STEPS_SHOWN], tenant=tenant
    )
    at = now()
    began = found.started_at or found.fire_at
    times = await runs.execution_times(rows, tenant=tenant, since=began)
    starts = {execution_id: known.started_at for execution_id, known in times.items()}
    tally = Counter(state for _, _, state in glance.steps)
    if tally["skipped"] and len(glance.steps) <= MAX_STEPS_DRAWN:
        found, rows = await _blocked(request, found, rows)
    seen = RunDetails(
        found,
        view,
        [(state, tally[state]) for state in BY_CONCERN if tally[state]],
        rows,
        len(matching),
        gantt_chart(rows, starts, began, found.finished_at or at),
    )
    seen = await _with_rights(request, seen)
    if view.show == "graph":
        wanted = next((p for p, name, _ in glance.steps if name == view.panel and view.panel), None)
        if wanted is not None:
            seen = replace(seen, panel=await step_panel(request, found, wanted))
            seen = await _with_rights(request, seen)
        if len(glance.steps) > MAX_STEPS_DRAWN and not (whole or view.draw):
            return replace(seen, later=True)
        return replace(seen, drawing=await _drawing(request, found, view, at))
    if view.show == "grid":
        listed = await runs.list_runs(tenant=tenant, workflow=str(found.job_id), limit=GRID_RUNS)
        last = [r for r in listed.items if r.state != "queued"]
        last = last if any(r.run_id == run_id for r in last) else [*last[: GRID_RUNS - 1], found]
        cells = await runs.step_cells(last, [s.name for s in rows if s.item is None], tenant=tenant)
        return replace(seen, runs=last[::-1], cells=cells)
    return seen


async def _with_rights(request: PageRequest, seen: RunDetails) -> RunDetails:
    """Add the reader's rights for the approvals shown."""
    shown = [*seen.rows, *([seen.panel.step] if seen.panel is not None else [])]
    names = {step.name for step in shown if step.kind == "approval"} - seen.rights.keys()
    run = seen.run
    added = await rights_in(request, run.run_id, names, job_id=run.job_id, version=run.version)
    return replace(seen, rights=seen.rights | added)


async def _blocked(
    request: PageRequest, run: wire.Run, rows: Sequence[wire.RunStep]
) -> tuple[wire.Run, list[wire.RunStep]]:
    """Add the steps that failed, and the steps that could not start because of them."""
    whole = await request.context.run_views.get(run.run_id, tenant=request.caller.tenant)
    causes = {step.name: step.blocked_by for step in whole.steps}
    marked = [msgspec.structs.replace(row, blocked_by=causes.get(row.name, [])) for row in rows]
    return msgspec.structs.replace(run, failed=whole.failed, blocked=whole.blocked), marked


async def _drawing(request: PageRequest, found: wire.Run, view: RunView, at: datetime) -> Drawing | None:
    runs, tenant = request.context.run_views, request.caller.tenant
    definition = await runs.definition(found, tenant=tenant)
    if definition is None or found.started_at is None:
        return None
    steps = await runs.steps_for_graph(found, tenant=tenant)
    if len(steps) <= MAX_DURATIONS:
        times = await runs.execution_times(steps, tenant=tenant, since=found.started_at)
        steps = [_timed(step, times) for step in steps]
    graph = of_run(steps, definition.order, definition.spec)
    # Ten thousand steps take tens of milliseconds, too long for the event loop that claims and settles.
    return await calculated(draw, graph, at, opened=view.opened, here=view.address(page=0, panel=""))


def _timed(step: wire.RunStep, times: Mapping[UUID, ExecutionTimes]) -> wire.RunStep:
    """Add the duration of a step's execution; a step with items has its own."""
    known = times.get(step.execution_id) if step.execution_id is not None and step.items is None else None
    return step if known is None else msgspec.structs.replace(step, duration_ms=known.duration_ms)


async def watch(
    request: PageRequest, run_id: UUID, changes: AsyncIterator[list[wire.Execution]], message: Callable[..., str]
) -> AsyncIterator[str]:
    """Yield the fragments that have changed since the last message."""
    view, sent = RunView.of(request), dict[str, str]()
    if request.query("later"):  # the page has no graph yet, so it gets a whole one
        sent["picture"] = ""
    loop = asyncio.get_running_loop()
    rest_until = read_at = 0.0
    run: wire.Run | None = None
    async for changed in changes:
        # Under load the stream may have dropped changes of this run, so it is read again every REFRESH_S.
        fresh = loop.time() - read_at < REFRESH_S
        if run is not None and fresh and changed and not any(_concerns(run, e) for e in changed):
            continue
        if (wait_s := rest_until - loop.time()) > 0:
            await asyncio.sleep(wait_s)
        began = read_at = loop.time()
        seen = await read_run(request, run_id, view, whole=True)
        run = seen.run
        for parts in _parts(request, seen, sent):
            yield message(parts)
        rest_until = loop.time() + REST_FACTOR * (loop.time() - began)
        if run.finished_at is not None:
            yield message("", event="end")
            return


def _concerns(run: wire.Run, e: wire.Execution) -> bool:
    return e.execution_id == run.run_id or (e.trigger == "step" and e.fire_at == run.fire_at)


def _parts(request: PageRequest, seen: RunDetails, sent: dict[str, str]) -> list[str]:
    """Return the changed fragments as two messages: a browser drops table rows after other elements."""
    values = {"seen": seen, "styles": STEP_STYLES, "state_of": state_of}

    def made(macro: str, **more: Any) -> str:
        return fragment("run_parts.html", macro, request.caller, **values, **more)

    parts = {"head": made("head"), "tally": made("tally")}
    rows: dict[str, str] = {}
    if sent.get("rows") == "" and seen.rows:  # the run has just started
        parts["steps"] = made("listing")
    elif seen.view.show == "grid":
        parts["grid"] = made("grid")
    else:
        rows = {f"row {s.name} {s.item}": made("step_row", s=s) for s in seen.rows}
    if seen.view.show == "gantt":
        parts["axis"] = made("axis")
    if seen.panel is not None:
        parts["panel"] = made("panel")
    if seen.drawing is not None:
        parts |= _drawn(request, seen.drawing, sent)
    sent["rows"] = "some" if seen.rows else ""
    found = []
    for group in (parts, rows):
        fresh = {name: text for name, text in group.items() if sent.get(name) != text}
        sent.update(fresh)
        found.append("".join(fresh.values()))
    return [text for text in found if text]


def _drawn(request: PageRequest, drawing: Drawing, sent: dict[str, str]) -> dict[str, str]:
    """Render boxes and edges; the whole graph if the set of boxes has changed."""

    def made(macro: str, **values: Any) -> str:
        return fragment("graph_parts.html", macro, request.caller, **values)

    parts = {"edges": made("edges", drawing=drawing)}
    parts |= {f"n-{box.key}": made("box", box=box) for box in drawing.boxes}
    if not sent or parts.keys() <= sent.keys():
        return parts
    sent.update(parts)
    return {"picture": made("picture", drawing=drawing)}
