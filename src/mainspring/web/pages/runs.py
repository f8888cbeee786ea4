"""The page of a run: its steps as a graph, as a grid over the last runs, or as bars of time; live while it lasts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import msgspec
from starlette.responses import Response

from mainspring import wire
from mainspring.store.charts import StepCell
from mainspring.views.runs import parse_run_id
from mainspring.web.access import Visit
from mainspring.web.draw.dag import BY_CONCERN, LOOKS, Drawing, draw, of_run, state_of
from mainspring.web.draw.gantt import Bars, bars
from mainspring.web.render import fragment, now, page

SHOWN = ("graph", "grid", "gantt")
ROWS = 100
COLUMNS = 25
LOOK_S = 3.0
AT_ONCE = 1000
"""The picture of a run with more steps comes after the page: over its stream, or where the page links to it."""
REST = 4
"""After a look a stream rests for so many times as long as it took: a large run does not keep the server busy."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What of a run somebody wants to see, as its address says it."""

    show: str = "graph"
    opened: tuple[str, ...] = ()
    state: str = ""
    find: str = ""
    step: str = ""
    number: int = 0
    draw: str = ""

    @classmethod
    def of(cls, visit: Visit) -> Choice:
        show, state, number = visit.query("show"), visit.query("state"), visit.query("page")
        return cls(
            show if show in SHOWN else SHOWN[0],
            tuple(visit.request.query_params.getlist("open")[-8:]),
            state if state in LOOKS else "",
            visit.query("find")[:100],
            visit.query("step")[:100],
            int(number) if number.isascii() and number.isdigit() and len(number) < 7 else 0,
            "yes" if visit.query("draw") else "",
        )

    def address(self, **changes: Any) -> str:
        """The query of this choice with some of it changed; what is as always is left out."""
        values = {
            "show": self.show, "open": self.opened, "state": self.state, "find": self.find, "step": self.step,
            "page": self.number, "draw": self.draw, **changes,
        }  # fmt: skip
        kept = {name: value for name, value in values.items() if value and (name, value) != ("show", SHOWN[0])}
        return "?" + urlencode(kept, doseq=True)


@dataclass(frozen=True, slots=True)
class Seen:
    """A run as one page shows it. `chosen` counts the steps that fit, of which `rows` are on this page.

    `later`: it is so large that its picture comes by itself.
    """

    run: wire.Run
    choice: Choice
    tally: list[tuple[str, int]]
    rows: Sequence[wire.RunStep]
    chosen: int
    bars: Bars
    drawing: Drawing | None = None
    later: bool = False
    runs: Sequence[wire.Run] = ()
    cells: dict[tuple[UUID, str], StepCell] = field(default_factory=dict)


async def run(visit: Visit) -> Response:
    seen = await look(visit, parse_run_id(visit.ref), Choice.of(visit))
    later = "yes" if seen.later else ""
    stream = f"/ui/stream{seen.choice.address(view='run', run=str(seen.run.run_id), later=later)}"
    return page("run.html", visit.caller, seen=seen, looks=LOOKS, state_of=state_of, stream=stream)


async def look(visit: Visit, run_id: UUID, choice: Choice, *, whole: bool = False) -> Seen:
    """`whole`: with the picture, however large."""
    runs, tenant = visit.context.run_views, visit.caller.tenant
    glance = await runs.step_states(run_id, tenant=tenant, step=choice.step)
    found = glance.run
    fitting = [p for p, name, state in glance.steps if choice.state in ("", state) and choice.find in name]
    rows = await runs.steps_by_ref(found, fitting[choice.number * ROWS : (choice.number + 1) * ROWS], tenant=tenant)
    at = now()
    began = found.started_at or found.fire_at
    starts = await runs.started_at(rows, tenant=tenant, since=began)
    tally = Counter(state for _, _, state in glance.steps)
    if tally["skipped"] and len(glance.steps) <= AT_ONCE:
        found, rows = await _blocked(visit, found, rows)
    seen = Seen(
        found,
        choice,
        [(state, tally[state]) for state in BY_CONCERN if tally[state]],
        rows,
        len(fitting),
        bars(rows, starts, began, found.finished_at or at),
    )
    if choice.show == "graph":
        if len(glance.steps) > AT_ONCE and not (whole or choice.draw):
            return replace(seen, later=True)
        return replace(seen, drawing=await _drawing(visit, found, choice, at))
    if choice.show == "grid":
        listed = await runs.list_runs(tenant=tenant, workflow=str(found.job_id), limit=COLUMNS)
        last = [r for r in listed.items if r.state != "queued"]
        last = last if any(r.run_id == run_id for r in last) else [*last[: COLUMNS - 1], found]
        cells = await runs.step_cells(last, [s.name for s in rows if s.item is None], tenant=tenant)
        return replace(seen, runs=last[::-1], cells=cells)
    return seen


async def _blocked(visit: Visit, run: wire.Run, rows: Sequence[wire.RunStep]) -> tuple[wire.Run, list[wire.RunStep]]:
    """With what failed, and which steps that kept from starting."""
    whole = await visit.context.run_views.get(run.run_id, tenant=visit.caller.tenant)
    causes = {step.name: step.blocked_by for step in whole.steps}
    told = [msgspec.structs.replace(row, blocked_by=causes.get(row.name, [])) for row in rows]
    return msgspec.structs.replace(run, failed=whole.failed, blocked=whole.blocked), told


async def _drawing(visit: Visit, found: wire.Run, choice: Choice, at: datetime) -> Drawing | None:
    runs, tenant = visit.context.run_views, visit.caller.tenant
    definition = await runs.definition(found, tenant=tenant)
    if definition is None or found.started_at is None:
        return None
    graph = of_run(await runs.steps_for_graph(found, tenant=tenant), definition.order)
    # Ten thousand steps take tens of milliseconds: not on the loop that claims and settles.
    return await asyncio.to_thread(draw, graph, at, opened=choice.opened, here=choice.address(page=0))


async def watch(
    visit: Visit, run_id: UUID, heard: AsyncIterator[list[wire.Execution]], message: Callable[..., str]
) -> AsyncIterator[str]:
    """What an open page is told: only what has changed since it was told before."""
    choice, told = Choice.of(visit), dict[str, str]()
    if visit.query("later"):  # the page has no picture yet, so it gets a whole one
        told["picture"] = ""
    loop = asyncio.get_running_loop()
    rest_until = looked = 0.0
    run: wire.Run | None = None
    async for changed in heard:
        # Where very much happens, what concerns this run may have been dropped on the way: then time brings it.
        fresh = loop.time() - looked < LOOK_S
        if run is not None and fresh and changed and not any(_concerns(run, e) for e in changed):
            continue
        if (wait_s := rest_until - loop.time()) > 0:
            await asyncio.sleep(wait_s)
        began = looked = loop.time()
        seen = await look(visit, run_id, choice, whole=True)
        run = seen.run
        for parts in _parts(visit, seen, told):
            yield message(parts)
        rest_until = loop.time() + REST * (loop.time() - began)
        if run.finished_at is not None:
            yield message("", event="end")
            return


def _concerns(run: wire.Run, e: wire.Execution) -> bool:
    return e.execution_id == run.run_id or (e.trigger == "step" and e.fire_at == run.fire_at)


def _parts(visit: Visit, seen: Seen, told: dict[str, str]) -> list[str]:
    """Fragments in two messages: a browser drops rows that come after anything but rows."""
    values = {"seen": seen, "looks": LOOKS, "state_of": state_of}

    def made(macro: str, **more: Any) -> str:
        return fragment("run_parts.html", macro, visit.caller, **values, **more)

    parts = {"head": made("head"), "tally": made("tally")}
    rows: dict[str, str] = {}
    if told.get("rows") == "" and seen.rows:  # it has begun only now
        parts["steps"] = made("listing")
    elif seen.choice.show == "grid":
        parts["grid"] = made("grid")
    else:
        rows = {f"row {s.name} {s.item}": made("step_row", s=s) for s in seen.rows}
    if seen.choice.show == "gantt":
        parts["axis"] = made("axis")
    if seen.drawing is not None:
        parts |= _drawn(visit, seen.drawing, told)
    told["rows"] = "some" if seen.rows else ""
    found = []
    for group in (parts, rows):
        fresh = {name: text for name, text in group.items() if told.get(name) != text}
        told.update(fresh)
        found.append("".join(fresh.values()))
    return [text for text in found if text]


def _drawn(visit: Visit, drawing: Drawing, told: dict[str, str]) -> dict[str, str]:
    """Boxes and curves; the whole picture if there are other boxes than before."""

    def made(macro: str, **values: Any) -> str:
        return fragment("graph.html", macro, visit.caller, **values)

    parts = {"edges": made("edges", drawing=drawing)}
    parts |= {f"n-{box.key}": made("box", box=box) for box in drawing.boxes}
    if not told or parts.keys() <= told.keys():
        return parts
    told.update(parts)
    return {"picture": made("picture", drawing=drawing)}
