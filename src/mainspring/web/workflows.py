"""Pages of workflows and runs: the graph drawn on the server, its steps, and what can be decided about them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.domain.layout import critical_path, spots
from mainspring.domain.workflow import WorkflowSpec
from mainspring.intake import workflows as intake
from mainspring.intake.runs import run_id_of
from mainspring.web import render, words
from mainspring.web.gate import Visit
from mainspring.web.pages import link
from mainspring.web.render import now, page
from mainspring.web.words import Look

SHOWN = 50
MOST_DRAWN = 400
"""More steps than this are listed and not drawn: nobody could read it."""
BOX_W, BOX_H, GAP_X, GAP_Y = 168, 44, 48, 16

LOOKS: dict[str, Look] = {
    **words.LOOKS,
    "waiting": Look("waits for somebody", "hourglass", "retry"),
    "partial": Look("partial", "alert", "bad"),
    "cancelling": Look("cancelling", "barred", "dim"),
}


@dataclass(frozen=True, slots=True)
class Box:
    name: str
    x: int
    y: int
    look: Look | None
    text: str
    critical: bool
    href: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A graph from left to right, with curves between its boxes."""

    width: int
    height: int
    boxes: list[Box]
    curves: list[tuple[str, bool]]


async def listing(visit: Visit) -> Response:
    cursor = visit.query("cursor")
    found = await intake.list_workflows(
        visit.context.database, tenant=visit.caller.tenant, cursor=cursor or None, limit=SHOWN
    )
    recent = await visit.context.runs.list(tenant=visit.caller.tenant, limit=20)
    return page(
        "workflows.html", visit.caller, workflows=found.items, runs=recent.items, looks=LOOKS, cursor=cursor,
        onward=found.next_cursor and link("/workflows", cursor=found.next_cursor),
    )  # fmt: skip


async def workflow(visit: Visit) -> Response:
    found = await intake.get(visit.context.database, visit.ref, tenant=visit.caller.tenant)
    recent = await visit.context.runs.list(tenant=visit.caller.tenant, workflow=str(found.job_id), limit=20)
    return page(
        "workflow.html",
        visit.caller,
        w=found,
        runs=recent.items,
        looks=LOOKS,
        drawing=draw(found.spec, found.order, None),
    )


async def run(visit: Visit) -> Response:
    found = await visit.context.runs.get(run_id_of(visit.ref), tenant=visit.caller.tenant, items=False)
    definition = await visit.context.runs.spec_of(found, tenant=visit.caller.tenant)
    order = [step.name for step in found.steps]
    if definition is not None:
        order = definition.order
    at = now()
    took = {step.name: seconds(step, at) for step in found.steps}
    needs = {step.name: tuple(step.needs) for step in found.steps}
    path = critical_path(needs, order, took) if order else []
    drawing = draw(definition.spec, order, found) if definition is not None else None
    start = found.started_at or found.fire_at
    end = found.finished_at or at
    return page(
        "run.html", visit.caller, run=found, looks=LOOKS, drawing=drawing, path=path, took=took,
        bars=bars(found, start, end), whole=max(0.001, (end - start).total_seconds()),
    )  # fmt: skip


def seconds(step: wire.RunStep, at: datetime) -> float:
    """How long a step took, or has taken so far."""
    if step.released_at is None or step.flag == "kept":
        return 0.0
    return max(0.0, ((step.finished_at or at) - step.released_at).total_seconds())


def bars(found: wire.Run, start: datetime, end: datetime) -> dict[str, tuple[float, float]]:
    """Where each step lies in the time of its run, in thousandths: from where, and how wide."""
    whole = max(0.001, (end - start).total_seconds())
    lying = {}
    for step in found.steps:
        if step.released_at is not None:
            left = max(0.0, (step.released_at - start).total_seconds())
            lying[step.name] = (round(1000 * left / whole, 1), max(2.0, round(1000 * seconds(step, end) / whole, 1)))
    return lying


def draw(spec: WorkflowSpec, order: list[str], found: wire.Run | None) -> Drawing | None:
    if len(order) > MOST_DRAWN:
        return None
    needs = {name: step.needs for name, step in spec.steps.items()}
    steps = {step.name: step for step in found.steps} if found is not None else {}
    at = now()
    took = {name: seconds(step, at) for name, step in steps.items()}
    critical = set(critical_path(needs, order, took)) if found is not None else set()
    boxes = {}
    for spot in spots(needs, order):
        step = steps.get(spot.name)
        text = spec.steps[spot.name].kind if step is None else _duration(took[spot.name]) if took[spot.name] else ""
        boxes[spot.name] = Box(
            spot.name, 8 + spot.column * (BOX_W + GAP_X), 8 + spot.row * (BOX_H + GAP_Y),
            LOOKS[step.state] if step is not None else None, text, spot.name in critical, f"#step-{spot.name}",
        )  # fmt: skip
    curves = [
        (_curve(boxes[need], boxes[name]), need in critical and name in critical)
        for name in order
        for need in needs[name]
    ]
    width = 16 + BOX_W + max(box.x for box in boxes.values())
    height = 16 + BOX_H + max(box.y for box in boxes.values())
    return Drawing(width, height, list(boxes.values()), curves)


def _curve(start: Box, end: Box) -> str:
    x1, y1 = start.x + BOX_W, start.y + BOX_H // 2
    x2, y2 = end.x, end.y + BOX_H // 2
    middle = (x1 + x2) // 2
    return f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"


def _duration(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s" if value < 120 else f"{value / 60:.0f} min"


# What the buttons do ------------------------------------------------------------------------------------


async def start(visit: Visit) -> Response:
    found = await visit.context.runs.start(
        visit.ref, wire.RunRequest(), tenant=visit.caller.tenant, by=visit.caller.name
    )  # fmt: skip
    return _to(f"/runs/{found.run_id}")


async def cancel(visit: Visit) -> Response:
    run_id = run_id_of(visit.ref)
    await visit.context.runs.cancel(
        run_id, tenant=visit.caller.tenant, by=visit.caller.name, reason=visit.form.get("reason", "")[:1000]
    )
    return _to(f"/runs/{run_id}")


async def rerun(visit: Visit) -> Response:
    begin = wire.Rerun(from_step=visit.form.get("from_step") or None)
    found = await visit.context.runs.rerun(
        run_id_of(visit.ref), begin, tenant=visit.caller.tenant, by=visit.caller.name
    )
    return _to(f"/runs/{found.run_id}")


async def decide(visit: Visit) -> Response:
    """Approves, rejects, skips or completes the step that the form names."""
    run_id, runs = run_id_of(visit.ref), visit.context.runs
    step, what, reason = (visit.form.get(name, "") for name in ("step", "what", "reason"))
    if what == "skip":
        await runs.skip(run_id, step, reason, tenant=visit.caller.tenant, by=visit.caller.name)
    elif what == "complete":
        await runs.force_complete(run_id, step, reason, None, tenant=visit.caller.tenant, by=visit.caller.name)
    else:
        await runs.decide(
            run_id, step, wire.Decision(note=reason[:1000]), tenant=visit.caller.tenant, by=visit.caller.name,
            scopes=sorted(visit.caller.scopes), approved=what == "approve",
        )  # fmt: skip
    return _to(f"/runs/{run_id}#step-{quote(step)}")


def _to(path: str) -> Response:
    return RedirectResponse(path, 303, render.HEADERS)
