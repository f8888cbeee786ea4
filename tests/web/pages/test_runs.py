from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from mainspring import wire
from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.intake import runs as run_actions
from mainspring.intake import workflows
from mainspring.web.draw.gantt import gantt_chart
from tests.conftest import Cluster
from tests.support.live_page import listening, until
from tests.support.pages import Page, open_page
from tests.support.processes import until_async
from tests.support.runs import spec
from tests.support.shell import Shell
from tests.support.workflow_pages import GATES, begun

pytestmark = pytest.mark.anyio

T0 = datetime(2026, 11, 2, 3, 0, tzinfo=UTC)


async def approve(cluster: Cluster, run: wire.Run, step: str) -> wire.Run:
    return await run_actions.decide(
        cluster.context.runs,
        run.run_id,
        step,
        wire.Decision(),
        tenant=TENANT,
        by="test",
        scopes=["write", "approve"],
        approved=True,
    )


def nodes(page: Page) -> dict[str, str]:
    """The boxes by id, with their classes."""
    found = [svg for svg in page.all("svg") if (svg.get("class") or "").startswith("node")]
    return {svg["id"] or "": svg["class"] or "" for svg in found}


@pytest.mark.requirement(132)
async def test_the_graph_lives(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    run = await begun(cluster, "gates", GATES)
    page = await open_page(browser, f"/runs/{run.run_id}")
    assert nodes(page) == {"n-0": "node retry critical", "n-1": "node held", "n-2": "node held", "n-3": "node held"}
    curves = [(p["data-from"], p["data-to"]) for p in page.all("path") if "data-from" in p]
    assert sorted(curves) == [("0", "1"), ("0", "2"), ("1", "3"), ("2", "3")]
    where = {svg["id"]: (int(svg["x"] or ""), int(svg["y"] or "")) for svg in page.all("svg") if svg.get("x")}
    assert where["n-0"][0] < where["n-1"][0] == where["n-2"][0] < where["n-3"][0]
    assert where["n-1"][1] != where["n-2"][1]
    assert page.active_parts() == []
    stream = next(value for _, a in page.elements if (value := a.get("data-stream")))
    async with listening(browser, stream) as events:
        told = await until(events, 'id="n-0"')
        assert nodes(Page(told.data))["n-0"].startswith("node retry")
        await approve(cluster, run, "first")
        told = await until(events, 'id="n-0"')
        changed = nodes(Page(told.data))
        assert changed["n-0"].startswith("node good") and changed["n-1"].startswith("node retry")
        assert "n-3" not in changed  # only what has changed
        assert "3 open" not in told.data and 'id="tally"' in told.data
        told = await until(events, 'id="step-first"')
        assert Page(f"<table>{told.data}</table>").elements[1][0] == "tr"  # rows come by themselves
        for step in ("left", "right", "last"):
            await approve(cluster, run, step)
        rest = [told async for told in events]
    assert rest[-1].event == "end"
    final = Page("".join(told.data for told in rest))
    assert nodes(final)["n-3"] == "node good critical" and "succeeded" in final.text


async def test_many_steps_are_drawn_as_stacks_that_open(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    wide: dict[str, Any] = {"begin": {"approval": {"self_approval": True}}}
    wide |= {f"load_{n:03d}": {"needs": ["begin"]} for n in range(400)}
    wide["end"] = {"needs": list(wide)[1:]}
    run = await begun(cluster, "wide", wide)
    path = f"/runs/{run.run_id}"
    page = await open_page(browser, path)
    assert sorted(nodes(page)) == ["n-0", "n-1.1.1", "n-401"]
    assert "400 steps" in page.text and "All 402" in page.text
    assert len(page.all("tr")) == 101
    href = next(a["href"] or "" for a in page.all("a") if "open=" in (a.get("href") or ""))
    opened = await open_page(browser, path + href.partition("#")[0])
    assert len(nodes(opened)) == 1 + 60 + 1 + 1
    further = await open_page(browser, f"{path}?page=4")
    assert len(further.all("tr")) == 3
    assert "No steps match." in (await open_page(browser, f"{path}?find=nothing")).text
    blocked = await open_page(browser, f"{path}?state=blocked&find=load_39")
    assert {i for i in blocked.ids() if i.startswith("step-")} == {f"step-load_39{n}" for n in range(10)}
    definition = await open_page(browser, f"/workflows/{run.job_id}")
    assert len(nodes(definition)) == 3 and "Next 202" in definition.text


async def test_the_grid_sets_steps_against_the_last_runs(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    first = await begun(
        cluster,
        "again",
        {"one": {"approval": {"self_approval": True}}, "two": {"approval": {"self_approval": True}, "needs": ["one"]}},
    )
    await approve(cluster, first, "one")
    second = await begun(
        cluster,
        "again",
        {
            "zero": {"approval": {"self_approval": True}},
            "one": {"approval": {"self_approval": True}, "needs": ["zero"]},
        },
    )
    page = await open_page(browser, f"/runs/{second.run_id}?show=grid")
    heads = [a["href"] for a in page.all("a") if (a.get("href") or "").endswith("?show=grid")]
    assert [f"/runs/{run.run_id}?show=grid" for run in (first, second)] == [h for h in heads if h and "/runs/" in h]
    cells = [a["title"] for a in page.all("a") if a.get("tabindex") == "-1"]
    # A step is told by its name, whatever number it has in the version of that run; "two" is gone, "zero" is new.
    assert [c.partition(",")[0] for c in cells if c] == [
        "zero: waiting",
        "one: succeeded",
        "one: blocked",
    ]
    gantt = await open_page(browser, f"/runs/{first.run_id}?show=gantt")
    assert "waiting for a worker" in gantt.text and {"axis", "step-one"} <= gantt.ids()


async def test_what_no_worker_has_taken_is_queued(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    run = await begun(cluster, "stuck", {"one": {"queue": "nobody"}, "two": {"needs": ["one"]}})
    page = await open_page(browser, f"/runs/{run.run_id}")
    assert "1 queued" in page.text and "1 blocked" in page.text


async def test_items_of_a_mapped_step_are_listed(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    steps = {"each": {"map": "[1, 2, 3]", "queue": "nobody"}}
    run = await begun(cluster, "mapped", steps)
    page = await open_page(browser, f"/runs/{run.run_id}")
    assert "0 of 3" in page.text
    items = await open_page(browser, f"/runs/{run.run_id}?step=each")
    assert {"step-each-0", "step-each-1", "step-each-2"} <= items.ids()


@pytest.mark.parametrize("query", ["show=nonsense", "page=-1", "page=99999999", "open=<b>&open=1.1", "state=odd"])
async def test_an_odd_address_shows_the_run_all_the_same(
    cluster: Cluster, browser: httpx2.AsyncClient, query: str
) -> None:
    run = await begun(cluster, "odd", {"one": {"approval": {"self_approval": True}}})
    page = await open_page(browser, f"/runs/{run.run_id}?{query}")
    assert "odd" in page.text and page.active_parts() == []


def test_a_bar_tells_waiting_from_running() -> None:
    taken, never = uuid4(), uuid4()

    def step(name: str, **more: Any) -> wire.RunStep:
        return wire.RunStep(name=name, kind="task", state="running", needs=[], released_at=T0, **more)

    steps = [
        step("taken", execution_id=taken, finished_at=T0 + timedelta(seconds=100)),
        step("never", execution_id=never),
        wire.RunStep(name="ahead", kind="task", state="blocked", needs=[]),
    ]
    found = gantt_chart(steps, {taken: T0 + timedelta(seconds=25)}, T0, T0 + timedelta(seconds=100))
    bar = found.bars["taken", None]
    assert (bar.x, bar.waited, bar.ran) == (0.0, 250.0, 750.0)
    assert (found.bars["never", None].waited, found.bars["never", None].ran) == (1000.0, 0.0)
    assert ("ahead", None) not in found.bars
    assert found.ticks == [(300.0, "+30 s"), (600.0, "+1 min"), (900.0, "+1 min 30 s")]


async def test_a_page_that_waits_for_its_run_shows_it_when_it_begins(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    written = spec("turns", {"one": {"approval": {"self_approval": True}}}, concurrency={"key": "turns", "limit": 1})
    await workflows.apply(cluster.database, written, tenant=TENANT, by="test")
    first, second = [
        await run_actions.start(cluster.context.runs, "turns", wire.RunRequest(), tenant=TENANT, by="test")
        for _ in range(2)
    ]

    async def begun() -> bool:
        nonlocal first, second
        first, second = sorted(
            [await cluster.context.run_views.get(run.run_id, tenant=TENANT) for run in (first, second)],
            key=lambda run: run.state == "queued",
        )
        return first.state != "queued"

    await until_async("the first of the two", begun, within_s=30)
    page = await open_page(browser, f"/runs/{second.run_id}")
    assert "The run has not started yet" in page.text and "picture" in page.ids()
    async with listening(browser, f"/ui/stream?view=run&run={second.run_id}") as events:
        await until(events, 'id="run-head"')
        await approve(cluster, first, "one")
        told = Page((await until(events, 'id="picture"')).data)
    assert "n-0" in nodes(told) and {"steps", "step-one"} <= told.ids()


async def test_the_picture_of_a_very_large_run_comes_after_the_page(
    cluster: Cluster, browser: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.web.pages.runs.MAX_STEPS_DRAWN", 3)
    run = await begun(cluster, "gates", GATES)
    path = f"/runs/{run.run_id}"
    page = await open_page(browser, path)
    assert nodes(page) == {} and "All 4" in page.text and "1 waiting" in page.text
    asked = next(a["href"] or "" for a in page.all("a") if "draw=" in (a.get("href") or ""))
    assert len(nodes(await open_page(browser, path + asked.partition("#")[0]))) == 4
    stream = next(value for _, a in page.elements if (value := a.get("data-stream")))
    async with listening(browser, stream) as events:
        told = await until(events, 'id="picture"')
        assert len(nodes(Page(told.data))) == 4
        await approve(cluster, run, "first")
        told = await until(events, 'id="n-0"')  # from now on only what changes
        assert 'id="picture"' not in told.data
    for step in ("left", "right", "last"):
        await approve(cluster, run, step)
    ended = await open_page(browser, path)
    stream = next(value for _, a in ended.elements if (value := a.get("data-stream")))
    async with listening(browser, stream) as events:
        told = await until(events, 'id="picture"')
        assert len(nodes(Page(told.data))) == 4
        assert [told async for told in events][-1].event == "end"


async def test_items_are_told_page_by_page(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    steps = {"each": {"map": str(list(range(150))), "queue": "nobody"}}
    run = await begun(cluster, "many", steps)
    first = await open_page(browser, f"/runs/{run.run_id}?step=each")
    assert "All 151" in first.text and "150 queued" in first.text and "Next 51" in first.text
    second = await open_page(browser, f"/runs/{run.run_id}?step=each&page=1")
    assert {"step-each-99", "step-each-149"} <= second.ids() and "step-each-98" not in second.ids()
    assert "No steps match." in (await open_page(browser, f"/runs/{run.run_id}?step=none")).text


@pytest.mark.requirement(104)
async def test_a_partial_run_shows_everywhere_which_branches_were_blocked(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    steps = {
        "load": {"approval": {"self_approval": True}},
        "check": {"needs": ["load"]},
        "report": {"needs": ["check"]},
        "other": {"approval": {"self_approval": True}},
    }
    run = await begun(cluster, "branches", steps)
    await approve(cluster, run, "other")
    await run_actions.decide(
        cluster.context.runs,
        run.run_id,
        "load",
        wire.Decision(note="bad"),
        tenant=TENANT,
        by="test",
        scopes=["write"],
        approved=False,
    )
    async with cluster.client() as client:
        found = await client.run(run.run_id)
    assert (found.state, found.failed, found.blocked) == ("partial", ["load"], ["check", "report"])
    assert {s.name: s.blocked_by for s in found.steps if s.blocked_by} == {"check": ["load"], "report": ["load"]}
    told = (await Shell(cluster)("runs", "show", str(run.run_id))).output
    assert "partial" in told and "blocked by load: check, report" in told
    assert told.count("blocked by load") == 3
    page = await open_page(browser, f"/runs/{run.run_id}")
    assert "partial" in page.text and "2 steps could not start because of load: check, report." in page.text
    assert page.text.count("blocked by load") == 2
    assert page.active_parts() == []


async def test_the_panel_of_a_step_has_its_input_output_error_and_actions(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    steps = {
        "good": {"task": {"kind": "shell", "argv": ["echo", "all is well"]}},
        "bad": {"task": {"kind": "shell", "argv": ["sh", "-c", "echo out of paper >&2; exit 7"]}, "needs": ["good"]},
        "after": {"approval": {"self_approval": True}, "needs": ["bad"]},
    }
    async with cluster.worker():
        run = await begun(cluster, "panelled", steps)

        async def ended() -> bool:
            return (await cluster.context.run_views.get(run.run_id, tenant=TENANT)).finished_at is not None

        await until_async("its end", ended, within_s=60)
    plain = await open_page(browser, f"/runs/{run.run_id}")
    assert "panel" not in plain.ids()
    links = [str(a["href"]) for a in plain.all("a") if "panel=" in (a.get("href") or "")]
    assert [link.partition("panel=")[2] for link in links] == ["good#panel", "bad#panel", "after#panel"]
    page = await open_page(browser, f"/runs/{run.run_id}{links[1]}")
    panel = page.text[page.text.index("badfailedclose") : page.text.index("Open the execution")]
    assert "shell: sh" in panel and "exit code 7" in panel and "out of paper" in panel
    asked = {str(a["href"]).partition("what=")[2] for a in page.all("a") if "step=bad" in (a.get("href") or "")}
    assert asked == {"skip", "complete"}
    unstarted = await open_page(browser, f"/runs/{run.run_id}?panel=after")
    assert "afterskippedclose" in unstarted.text
    assert "panel" not in (await open_page(browser, f"/runs/{run.run_id}?panel=nothing")).ids()
    assert page.active_parts() == []


async def test_an_approval_is_asked_for_at_the_top_of_the_page(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    gate = {"gate": {"approval": {"self_approval": True, "message": "Ship it?"}}}
    run = await begun(cluster, "asks", gate)
    page = await open_page(browser, f"/runs/{run.run_id}")
    assert "Awaiting approval gate : Ship it?" in page.text.replace("gate:", "gate :")
    top = page.text[: page.text.index("Version 1")]
    assert "Approve…" in top and "Reject…" in top
    await approve(cluster, run, "gate")
    assert "Awaiting approval" not in (await open_page(browser, f"/runs/{run.run_id}")).text
