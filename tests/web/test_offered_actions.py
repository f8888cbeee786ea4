"""Pages offer a reader only what the server accepts from that reader: every form and button of every page, by role."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urljoin, urlsplit

import httpx2
import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import Forbidden
from mainspring.manifest import read_workflows
from mainspring.web.app import every_page
from tests.support.browser_pages import QUERIES, paths
from tests.support.browser_scene import Scene, filled
from tests.support.pages import NAVIGATION, Page, sign_in
from tests.support.processes import Dev, dev, until_async

pytestmark = pytest.mark.anyio

ROLES = ("viewer", "submitter", "operator", "admin")
NOT_CSRF = "does not match your session"
"""The server checks the caller's rights before the form's token: this answer means that the form would be accepted."""
GATES = """
kind: Workflow
metadata: {name: gates}
spec:
  steps:
    open: {approval: {message: "Open?", self_approval: true}}
    mine: {approval: {message: "Mine?"}}
    operators: {approval: {message: "Operators?", roles: [operator], self_approval: true}}
    admins: {approval: {message: "Admins?", scope: admin, self_approval: true}}
    two: {approval: {message: "Two?", count: 2, self_approval: true}}
"""


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Dev, Scene]]:
    async with dev(tmp_path_factory.mktemp("offered")) as server:
        async with server.client() as client:
            scene = await filled(client)
            for spec in read_workflows(GATES):
                await client.apply_workflow(spec)
        yield server, scene


@asynccontextmanager
async def reader(server: Dev, role: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A browser signed in with a token of a role."""
    async with server.client() as client:
        token = (await client.issue_token(wire.NewToken(name=role, role=role))).token
    base = f"http://127.0.0.1:{server.port}"
    async with httpx2.AsyncClient(base_url=base, headers=NAVIGATION, timeout=60) as browser:
        assert (await sign_in(browser, token)).status_code == 303
        yield browser


FORM = re.compile(r"<form\b([^>]*)>(.*?)</form>", re.DOTALL)


def offered(html: str, here: str) -> set[str]:
    """The paths that the forms of a page post to, if they have a button, and the actions that its buttons lead to."""
    page, posts = Page(html), set[str]()
    for attributes, inside in FORM.findall(html):
        (form,) = Page(f"<form {attributes}>").all("form")
        if form.get("method") == "post" and any(b.get("type") != "button" for b in Page(inside).all("button")):
            posts.add(form.get("action") or here)
    buttons = {a.get("href") or "" for a in page.all("a") if "button" in (a.get("class") or "").split()}
    routes = [re.compile(re.sub(r"\{\w+\}", "[^/]+", p.path) + r"\Z") for p in every_page() if p.post is not None]
    acting = {b for b in buttons if any(route.match(urlsplit(urljoin(here, b)).path) for route in routes)}
    return {urljoin(here, path) for path in posts | acting}


@pytest.mark.parametrize("role", ROLES)
async def test_each_action_on_a_page_is_accepted(running: tuple[Dev, Scene], role: str) -> None:
    server, scene = running
    found: dict[str, str] = {}
    async with reader(server, role) as browser:
        for route in paths():
            address = scene.path(route) + QUERIES.get(route, "")
            answer = await browser.get(address)
            if answer.status_code == 200 and answer.headers["content-type"].startswith("text/html"):
                found |= dict.fromkeys(offered(answer.text, address), address)
        refused = []
        for path, address in found.items():
            answer = await browser.post(path, data={"csrf": "no"})
            text = Page(answer.text).text
            if urlsplit(path).path not in ("/login", "/logout") and NOT_CSRF not in text:
                refused.append(f"{address} offers {path}: {answer.status_code} {text[:200]}")
            if urlsplit(path).path != "/logout" and (await browser.get(path)).status_code == 403:
                refused.append(f"{address} leads to {path}, which is refused")
    assert not refused, "\n".join(refused)
    expected = {"viewer": 1, "submitter": 20, "operator": 25, "admin": 25}
    assert len(found) >= expected[role], found


@pytest.mark.parametrize("role", ROLES)
async def test_a_run_offers_the_decisions_that_the_api_accepts(running: tuple[Dev, Scene], role: str) -> None:
    """The API decides: each offered and each missing decision is tried in a run of its own."""
    server, _ = running
    async with server.client() as admin, reader(server, role) as browser:
        token = (await admin.issue_token(wire.NewToken(name=f"{role} of the API", role=role))).token
        shown = await admin.start_run("gates")

        async def listed() -> bool:
            return str(shown.run_id) in (await browser.get("/")).text

        await until_async("the run on the start page", listed, within_s=30)
        pages = {place: Page((await browser.get(place)).text) for place in (f"/runs/{shown.run_id}", "/")}
        for step in ("open", "mine", "operators", "admins", "two"):
            for what in ("approve", "reject"):
                fresh = await admin.start_run("gates")
                offers = {place: _offers(page, shown, step, what) for place, page in pages.items()}
                async with AsyncClient(f"http://127.0.0.1:{server.port}", token) as client:
                    accepted = await _accepted(client, fresh, step, what)
                await admin.cancel_run(fresh.run_id)  # so that the start page lists the next one
                assert offers == dict.fromkeys(pages, accepted), (role, step, what)
        await admin.cancel_run(shown.run_id)
        if role != "viewer":
            await _check_own_run(server, role)


def _offers(page: Page, run: wire.Run, step: str, what: str) -> bool:
    parts = (f"/runs/{run.run_id}/decide", f"step={step}", f"what={what}")
    return any(all(part in (a.get("href") or "") for part in parts) for a in page.all("a"))


async def _accepted(client: AsyncClient, run: wire.Run, step: str, what: str) -> bool:
    try:
        await client.decide(run.run_id, step, approved=what == "approve")
    except Forbidden:
        return False
    return True


async def _check_own_run(server: Dev, role: str) -> None:
    """Who started a run may reject the gate that is not for them, and not approve, skip or complete it."""
    async with server.client() as admin:
        token = (await admin.issue_token(wire.NewToken(name=f"{role} twice", role=role))).token
    base = f"http://127.0.0.1:{server.port}"
    async with AsyncClient(base, token) as client:
        mine = await client.start_run("gates")
    async with httpx2.AsyncClient(base_url=base, headers=NAVIGATION, timeout=60) as browser:
        assert (await sign_in(browser, token)).status_code == 303
        page = Page((await browser.get(f"/runs/{mine.run_id}?panel=mine")).text)
    assert [_offers(page, mine, "mine", what) for what in ("approve", "reject", "skip", "complete")] == [
        False, True, False, False,
    ]  # fmt: skip
    assert "requires another approver" in page.text
    assert not _offers(page, mine, "two", "skip")  # several have to open it
