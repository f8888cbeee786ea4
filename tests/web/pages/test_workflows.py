from __future__ import annotations

import httpx2
import pytest

from mainspring import wire
from mainspring.api.auth import issue_token
from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.client import AsyncClient
from mainspring.domain.errors import Forbidden
from mainspring.domain.workflow.layout import critical_path, node_positions
from mainspring.intake import runs as run_actions
from mainspring.intake import workflows
from mainspring.views import workflows as workflow_views
from tests.conftest import Cluster
from tests.support.pages import NAVIGATION, Page, follow_link, open_page
from tests.support.runs import spec

pytestmark = pytest.mark.anyio

HOSTILE = '"><script>alert(1)</script>'


async def begun(cluster: Cluster, name: str) -> wire.Run:
    steps = {"build": {"approval": {}}, "sign": {"approval": {}, "needs": ["build"], "description": HOSTILE}}
    written = spec(name, steps, description=HOSTILE)
    await workflows.apply(cluster.database, written, tenant=TENANT, by="test")
    return await run_actions.start(cluster.context.runs, name, wire.RunRequest(), tenant=TENANT, by=HOSTILE)


async def test_the_graph_the_steps_and_the_longest_way_are_shown(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    run = await begun(cluster, "shown")
    listing = await open_page(browser, "/workflows")
    assert "shown" in listing.text
    definition = await open_page(browser, f"/workflows/{run.job_id}")
    assert len(boxes(definition)) == 2 and definition.active_parts() == []
    found = await open_page(browser, f"/runs/{run.run_id}")
    assert len(boxes(found)) == 2 and "waiting" in found.text
    head = await open_page(browser, f"/executions/{run.run_id}")
    assert f"/runs/{run.run_id}" in [a.get("href") for a in head.all("a")]
    assert found.active_parts() == [] and {"step-build", "step-sign"} <= found.ids()


def boxes(page: Page) -> list[dict[str, str | None]]:
    return [svg for svg in page.all("svg") if (svg.get("class") or "").startswith("node")]


async def test_an_earlier_version_is_brought_back_on_the_page(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    first = await begun(cluster, "returned")
    changed = spec("returned", {"build": {"approval": {}}, "added": {"approval": {}}})
    await workflows.apply(cluster.database, changed, tenant=TENANT, by=HOSTILE)
    assert f"/workflows/{first.job_id}/versions" in [
        a.get("href") for a in (await open_page(browser, f"/workflows/{first.job_id}")).all("a")
    ]
    page = await open_page(browser, f"/workflows/{first.job_id}/versions")
    assert page.active_parts() == [] and {"v-1", "v-2"} <= page.ids()
    assert "Steps added: added" in page.text and "Steps removed: sign" in page.text
    form = {"csrf": page.csrf, "to": "1", "version": "2"}
    assert (await browser.post(f"/workflows/{first.job_id}/rollback", data=form)).status_code == 303
    found = await workflow_views.get(cluster.database, "returned", tenant=TENANT)
    assert (found.version, list(found.spec.steps)) == (3, ["build", "sign"])
    for again, status in ((form, 409), (form | {"to": "7", "version": "3"}, 404), (form | {"to": "x"}, 404)):
        assert (await browser.post(f"/workflows/{first.job_id}/rollback", data=again)).status_code == status


async def test_a_run_that_waits_for_its_turn_has_a_page_before_and_after(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    limited = spec("in-turn", {"sign": {"approval": {}}}, concurrency={"limit": 1})
    await workflows.apply(cluster.database, limited, tenant=TENANT, by="test")
    runs = cluster.context.runs
    await run_actions.start(runs, "in-turn", wire.RunRequest(), tenant=TENANT, by="test")
    second = await run_actions.start(runs, "in-turn", wire.RunRequest(), tenant=TENANT, by="test")
    page = await open_page(browser, f"/runs/{second.run_id}")
    assert "queued, details" in page.text and "Cancel…" in page.text
    assert f"/runs/{second.run_id}" in [
        a.get("href") for a in (await open_page(browser, f"/workflows/{second.job_id}")).all("a")
    ]
    ask = await open_page(browser, f"/runs/{second.run_id}/cancel")
    assert "The run has not started" in ask.text
    answer = await browser.post(f"/runs/{second.run_id}/cancel", data={"csrf": ask.csrf, "reason": "not needed"})
    assert answer.status_code == 303
    page = await open_page(browser, f"/runs/{second.run_id}")
    assert "without starting" in page.text and "not needed" in page.text and "Rerun…" not in page.text


async def test_an_approval_says_what_it_asks_and_who_may_answer(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    steps = {"sign": {"approval": {"scope": "admin", "message": f"ship it? {HOSTILE}"}}}
    await workflows.apply(cluster.database, spec("guarded", steps), tenant=TENANT, by="test")
    run = await run_actions.start(cluster.context.runs, "guarded", wire.RunRequest(), tenant=TENANT, by="test")
    page = await open_page(browser, f"/runs/{run.run_id}")
    assert "ship it?" in page.text and "Approve…" in page.text and page.active_parts() == []
    asked = await open_page(browser, f"/runs/{run.run_id}/decide?step=sign&what=approve")
    assert "ship it?" in asked.text and asked.active_parts() == []
    async with cluster.database.connection() as connection:
        token = await issue_token(connection, tenant=TENANT, name="writer", scopes=("read", "write"))
    async with AsyncClient(cluster.url, token) as client:
        link = (await client.login_link()).path
        with pytest.raises(Forbidden):
            await client.skip_step(run.run_id, "sign", "in a hurry")
    async with httpx2.AsyncClient(base_url=cluster.url, follow_redirects=True) as other:
        other.headers.update(NAVIGATION)
        await follow_link(other, link)
        page = await open_page(other, f"/runs/{run.run_id}")
        assert "requires admin" in page.text and "Approve…" not in page.text and "Skip…" not in page.text


async def test_an_approval_is_given_on_the_page(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    run = await begun(cluster, "approved")
    found = await open_page(browser, f"/runs/{run.run_id}")
    for step in ("build", "sign"):
        form = {"csrf": found.csrf, "step": step, "what": "approve", "reason": "fine"}
        answer = await browser.post(f"/runs/{run.run_id}/decide", data=form)
        assert answer.status_code == 303
    ended = await cluster.context.run_views.get(run.run_id, tenant=TENANT)
    assert ended.state == "succeeded"


async def test_a_run_that_is_not_there_is_not_found(browser: httpx2.AsyncClient) -> None:
    assert (await browser.get("/runs/nonsense")).status_code == 404
    assert (await browser.get("/workflows/nonsense")).status_code == 404


def test_columns_follow_needs_and_the_longest_way_is_by_time() -> None:
    needs = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}
    order = ["a", "b", "c", "d"]
    assert {s.name: s.column for s in node_positions(needs, order)} == {"a": 0, "b": 1, "c": 1, "d": 2}
    assert critical_path(needs, order, {"a": 1, "b": 1, "c": 5, "d": 1}) == ["a", "c", "d"]


async def test_owner_runbook_labels_and_notifications_are_shown(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    link = "https://wiki.example.com/x"
    metadata = {"owner": HOSTILE, "runbook": link, "labels": {"team": "finance"}}
    written = spec("owned", {"build": {"approval": {}}}, metadata=metadata)
    found, _ = await workflows.apply(cluster.database, written, tenant=TENANT, by="test")
    for path in (f"/workflows/{found.job_id}", f"/jobs/{found.job_id}"):
        page = await open_page(browser, path)
        assert page.active_parts() == [link] and HOSTILE in page.text
    unsafe = spec("unsafe", {"build": {"approval": {}}}, metadata={"runbook": "javascript:alert(1)"})
    found, _ = await workflows.apply(cluster.database, unsafe, tenant=TENANT, by="test")
    page = await open_page(browser, f"/workflows/{found.job_id}")
    assert not [a for a in page.all("a") if (a.get("href") or "").startswith("javascript")]


async def test_steps_are_named_by_kind_and_maps_and_branches_are_drawn(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    steps = {
        "parts": {"task": {"kind": "python", "function": "app.parts"}},
        "load": {
            "task": {"kind": "shell", "argv": ["load", "{{item}}"]},
            "needs": ["parts"],
            "map": "steps.parts.result",
        },
        "warn": {"task": {"kind": "noop"}, "needs": ["load"], "when": "size(steps.load.result) == 0"},
        "sign": {"approval": {}, "needs": ["load"]},
    }
    await workflows.apply(cluster.database, spec("kinds", steps), tenant=TENANT, by="test")
    asked = wire.RunRequest()
    run = await run_actions.start(cluster.context.runs, "kinds", asked, tenant=TENANT, by="test")
    page = await open_page(browser, f"/workflows/{run.job_id}")
    for text in ("python: parts", "each: shell: load", "if: noop", "approval", "each of steps.parts.result"):
        assert text in page.text, text
    piles = [a for a in page.all("rect") if a.get("class") == "behind"]
    dashed = [(a["data-from"], a["data-to"]) for a in page.all("path") if "conditional" in (a.get("class") or "")]
    assert len(piles) == 1 and dashed == [("1", "2")]
    strip = next(a for a in page.all("ol") if a.get("class") == "run-strip")
    assert strip["aria-label"] == "Latest runs, oldest first"
