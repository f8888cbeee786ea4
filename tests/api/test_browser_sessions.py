"""Browser sessions: listed with where they come from, and ended from elsewhere."""

from __future__ import annotations

from uuid import uuid4

import httpx2
import pytest

from mainspring.api.auth import COOKIE
from mainspring.client import AsyncClient
from mainspring.domain.errors import NotFound
from mainspring.store.browser_sessions import MAX_SESSIONS_PER_TOKEN
from tests.conftest import Cluster
from tests.support.api_tokens import Issue
from tests.support.pages import NAVIGATION, open_page, sign_in

pytestmark = pytest.mark.anyio


def browser_of(cluster: Cluster, agent: str) -> httpx2.AsyncClient:
    headers = {**NAVIGATION, "user-agent": agent}
    return httpx2.AsyncClient(base_url=cluster.url, headers=headers, trust_env=False, timeout=30)


async def is_signed_in(browser: httpx2.AsyncClient) -> bool:
    return (await browser.get("/settings")).status_code == 200


async def test_sessions_are_listed_and_ended(cluster: Cluster, issue: Issue) -> None:
    token = await issue("read")
    async with (
        browser_of(cluster, "Lynx") as one,
        browser_of(cluster, "Mosaic") as two,
        AsyncClient(cluster.url, token) as client,
    ):
        for browser in (one, two):
            assert (await sign_in(browser, token)).status_code == 303
        listed = (await client.browser_sessions()).items
        assert {session.user_agent for session in listed} == {"Lynx", "Mosaic"}
        assert {session.address for session in listed} == {"127.0.0.1"}
        assert all(s.created_at <= s.seen_at < s.expires_at and s.token == "test ('read',)" for s in listed)
        lynx = next(session for session in listed if session.user_agent == "Lynx")
        await client.end_browser_session(lynx.session_id)
        assert not await is_signed_in(one) and await is_signed_in(two)
        with pytest.raises(NotFound):
            await client.end_browser_session(lynx.session_id)
        assert (await client.end_browser_sessions()).ended == 1
        assert not await is_signed_in(two)
        assert (await client.browser_sessions()).items == []


async def test_a_session_belongs_to_its_token_and_an_admin_sees_the_tenant(
    cluster: Cluster, issue: Issue, neighbour: AsyncClient
) -> None:
    token, other = await issue("read"), await issue("read")
    await cluster.context.auth.cookie_for_token(token)
    async with AsyncClient(cluster.url, other) as stranger, cluster.client() as admin:
        (session,) = [s for s in (await admin.browser_sessions()).items if s.token == "test ('read',)"]
        assert (await stranger.browser_sessions()).items == []
        for client in (stranger, neighbour):
            assert session.session_id not in [s.session_id for s in (await client.browser_sessions()).items]
            for ref in (session.session_id, uuid4(), "nonsense"):
                with pytest.raises(NotFound):
                    await client.end_browser_session(ref)
        assert (await stranger.end_browser_sessions()).ended == 0
        await admin.end_browser_session(session.session_id)


async def test_the_settings_page_ends_other_sessions(cluster: Cluster, issue: Issue) -> None:
    token = await issue("read")
    async with browser_of(cluster, "Lynx") as one, browser_of(cluster, "Mosaic") as two:
        for browser in (one, two):
            await sign_in(browser, token)
        page = await open_page(one, "/settings")
        assert "Lynx this browser" in page.text and "Mosaic" in page.text
        actions = [form.get("action") or "" for form in page.all("form")]
        ends = [action for action in actions if action.startswith("/settings/sessions/")]
        assert len(ends) == 2, "the other one, and all others"
        assert (await one.post(ends[0], data={"csrf": page.csrf})).status_code == 303
        assert not await is_signed_in(two) and await is_signed_in(one)
        await sign_in(two, token)
        assert (await one.post("/settings/sessions/end-others", data={"csrf": page.csrf})).status_code == 303
        assert not await is_signed_in(two) and await is_signed_in(one)
        assert (await one.post("/settings/sessions/end-others", data={"csrf": "x"})).status_code == 403


async def test_a_token_has_a_bounded_number_of_sessions(cluster: Cluster, issue: Issue) -> None:
    token = await issue("read")
    cookies = [await cluster.context.auth.cookie_for_token(token) for _ in range(MAX_SESSIONS_PER_TOKEN + 2)]
    async with AsyncClient(cluster.url, token) as client:
        assert len((await client.browser_sessions()).items) == MAX_SESSIONS_PER_TOKEN
    async with browser_of(cluster, "Lynx") as browser:
        browser.cookies.set(COOKIE, cookies[0])
        assert not await is_signed_in(browser)
        browser.cookies.set(COOKIE, cookies[-1])
        assert await is_signed_in(browser)


async def test_a_cookie_costs_a_token_request_nothing_and_itself_one_query(cluster: Cluster, issue: Issue) -> None:
    token = await issue("read")
    cookie = await cluster.context.auth.cookie_for_token(token)
    auth = cluster.context.auth
    async with browser_of(cluster, "Lynx") as browser:
        browser.cookies.set(COOKIE, cookie)
        assert await is_signed_in(browser)
        before = len(auth._known)
        for _ in range(5):
            assert await is_signed_in(browser)
        assert len(auth._known) == before


async def test_a_forged_cookie_is_refused_without_a_query(cluster: Cluster) -> None:
    auth, known = cluster.context.auth, dict(cluster.context.auth._known)
    async with browser_of(cluster, "Lynx") as browser:
        for cookie in ("x", "x.y", "é", ".", "a.b.c", auth.new_login_nonce()):
            answer = await browser.get("/api/v1/jobs", headers={b"cookie": f"{COOKIE}={cookie}".encode()})
            assert answer.status_code == 401
    assert auth._known == known and not auth._lookups
