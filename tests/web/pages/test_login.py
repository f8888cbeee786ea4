from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import AsyncIterator

import httpx2
import pytest

from mainspring.api.auth import COOKIE, issue_token
from mainspring.cli.serve import DEFAULT_TENANT
from mainspring.store import tokens
from tests.conftest import Cluster
from tests.support.pages import NAVIGATION, Page, follow_link, open_page, posted, sign_in

pytestmark = pytest.mark.anyio


async def link_of(cluster: Cluster, then: str = "/") -> str:
    key, _ = await cluster.context.auth.new_login_link(await cluster.context.auth.by_token(cluster.token))
    return f"/login?k={key}&then={then}"


async def is_signed_in(browser: httpx2.AsyncClient) -> bool:
    return (await browser.get("/jobs")).status_code == 200


@pytest.fixture
async def other(cluster: Cluster) -> AsyncIterator[httpx2.AsyncClient]:
    """Another browser."""
    async with httpx2.AsyncClient(base_url=cluster.url, headers=NAVIGATION, timeout=30) as browser:
        yield browser


async def test_a_link_signs_a_browser_in(cluster: Cluster, stranger: httpx2.AsyncClient) -> None:
    answer = await stranger.get(await link_of(cluster, "/jobs"))
    assert answer.status_code == 200 and COOKIE not in stranger.cookies
    page = Page(answer.text)
    assert "token test admin" in page.text and page.active_parts() == []
    answer = await stranger.post("/login", data=posted(page))
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs")
    cookie = next(c for c in answer.headers.get_list("set-cookie") if c.startswith(f"{COOKIE}=")).lower()
    assert {"httponly", "samesite=strict", "path=/"} <= set(cookie.split("; "))
    assert "Jobs" in (await open_page(stranger, "/jobs")).text


async def test_a_link_works_once(cluster: Cluster, stranger: httpx2.AsyncClient, other: httpx2.AsyncClient) -> None:
    link = await link_of(cluster)
    assert (await follow_link(stranger, link)).status_code == 303
    for browser in (stranger, other):
        assert (await browser.get(link)).status_code == 401
    assert await is_signed_in(stranger) and not await is_signed_in(other)


async def test_opening_a_link_without_confirming_it_changes_nothing(
    cluster: Cluster, stranger: httpx2.AsyncClient, other: httpx2.AsyncClient
) -> None:
    """Mail scanners and chat previews open links before people do."""
    link = await link_of(cluster)
    for _ in range(3):
        assert (await other.get(link)).status_code == 200
        assert (await other.head(link)).status_code == 200
    assert not await is_signed_in(other)
    assert (await follow_link(stranger, link)).status_code == 303
    assert await is_signed_in(stranger)


async def test_a_form_works_only_in_the_browser_that_loaded_it(
    cluster: Cluster, stranger: httpx2.AsyncClient, other: httpx2.AsyncClient
) -> None:
    form = posted(Page((await stranger.get(await link_of(cluster))).text))
    assert (await other.post("/login", data=form)).status_code == 403
    await other.get("/login")  # it has a form of its own, for no link
    assert (await other.post("/login", data=form)).status_code == 403
    assert not await is_signed_in(other)
    assert (await stranger.post("/login", data=form)).status_code == 303


async def test_of_two_browsers_that_confirm_a_link_one_gets_in(
    cluster: Cluster, stranger: httpx2.AsyncClient, other: httpx2.AsyncClient
) -> None:
    link = await link_of(cluster)
    forms = [posted(Page((await browser.get(link)).text)) for browser in (stranger, other)]
    answers = await asyncio.gather(
        *[browser.post("/login", data=form) for browser, form in zip((stranger, other), forms, strict=True)]
    )
    assert sorted(answer.status_code for answer in answers) == [303, 401]


async def test_a_link_ends_with_its_token(cluster: Cluster, stranger: httpx2.AsyncClient) -> None:
    async with cluster.database.connection() as connection:
        token = await issue_token(connection, tenant=DEFAULT_TENANT, name="for a link", scopes=("read",))
        caller = await cluster.context.auth.by_token(token)
        key, _ = await cluster.context.auth.new_login_link(caller)
        await tokens.revoke_token(connection, tenant=DEFAULT_TENANT, token_id=caller.token_id)
    assert (await stranger.get(f"/login?k={key}")).status_code == 401


async def test_a_token_signs_a_browser_in(cluster: Cluster, stranger: httpx2.AsyncClient) -> None:
    answer = await sign_in(stranger, f" {cluster.token}\n", then="/workers")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/workers"
    assert "httponly" in answer.headers["set-cookie"].lower()
    assert "Workers" in (await open_page(stranger, "/workers")).text


@pytest.mark.parametrize("key", ["nonsense", "a.b.c", "é", "x" * 5000])
async def test_a_bad_link_is_refused(stranger: httpx2.AsyncClient, key: str) -> None:
    answer = await stranger.get("/login", params={"k": key})
    assert answer.status_code == 401
    assert COOKIE not in answer.headers["set-cookie"]
    assert "mainspring ui" in Page(answer.text).text


@pytest.mark.parametrize("token", ["", "ms_wrong", "<script>alert(1)</script>"])
async def test_a_bad_token_is_refused(stranger: httpx2.AsyncClient, token: str) -> None:
    answer = await sign_in(stranger, token)
    assert answer.status_code == 401
    assert COOKIE not in answer.headers["set-cookie"]
    page = Page(answer.text)
    assert "Invalid token" in page.text
    assert page.active_parts() == []


async def test_the_login_takes_forms_of_its_own_only(cluster: Cluster, stranger: httpx2.AsyncClient) -> None:
    form = posted(Page((await stranger.get("/login")).text)) | {"token": cluster.token}
    elsewhere = {"sec-fetch-site": "cross-site"}
    assert (await stranger.post("/login", data=form, headers=elsewhere)).status_code == 403
    without = {name: value for name, value in form.items() if name != "proof"}
    assert (await stranger.post("/login", data=without)).status_code == 403
    stranger.cookies.clear()
    assert (await stranger.post("/login", data=form)).status_code == 403
    assert not await is_signed_in(stranger)


@pytest.mark.parametrize("then", ["https://example.com/", "//example.com", "/\\example.com", "javascript:alert(1)", ""])
async def test_nobody_is_sent_elsewhere(cluster: Cluster, stranger: httpx2.AsyncClient, then: str) -> None:
    answer = await sign_in(stranger, cluster.token, then=then)
    assert answer.headers["location"] == "/"


async def test_the_form_has_few_bytes(stranger: httpx2.AsyncClient) -> None:
    assert (await stranger.post("/login", data={"token": "x" * 10_000})).status_code == 413
    assert (await stranger.post("/login", content="&" * 600)).status_code in (403, 413)


async def test_the_login_page_brings_its_style_under_a_hash(stranger: httpx2.AsyncClient) -> None:
    answer = await stranger.get("/login")
    assert answer.status_code == 200
    style = re.search(r"<style>(.*)</style>", answer.text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = answer.headers["content-security-policy"]
    assert f"style-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    page = Page(answer.text)
    assert [a for a in page.all("link") if a["href"] != "data:,"] == page.all("script") == []


async def test_signing_out_ends_the_session(
    cluster: Cluster, browser: httpx2.AsyncClient, other: httpx2.AsyncClient
) -> None:
    other.cookies.set(COOKIE, browser.cookies[COOKIE])
    assert await is_signed_in(other), "a copy of the cookie works while the session does"
    csrf = (await open_page(browser, "/")).csrf
    answer = await browser.post("/logout", data={"csrf": csrf})
    assert answer.status_code == 303
    assert COOKIE not in browser.cookies
    assert (await browser.get("/")).headers["location"] == "/login"
    assert not await is_signed_in(other)


async def test_signing_in_again_ends_the_session_before(
    cluster: Cluster, browser: httpx2.AsyncClient, other: httpx2.AsyncClient
) -> None:
    other.cookies.set(COOKIE, browser.cookies[COOKIE])
    await sign_in(browser, cluster.token)
    assert await is_signed_in(browser) and not await is_signed_in(other)


async def test_a_reader_sees_no_buttons_and_may_sign_out(cluster: Cluster, stranger: httpx2.AsyncClient) -> None:
    async with cluster.database.connection() as connection:
        token = await issue_token(connection, tenant=DEFAULT_TENANT, name="reader", scopes=("read",))
    await sign_in(stranger, token)
    page = await open_page(stranger, "/jobs")
    posting = [form for form in page.all("form") if form.get("method") == "post"]
    assert [form["action"] for form in posting] == ["/logout"]
    assert (await stranger.post("/jobs/x/pause", data={"csrf": page.csrf})).status_code == 403
    assert (await stranger.post("/logout", data={"csrf": page.csrf})).status_code == 303


async def test_a_worker_token_sees_no_pages(cluster: Cluster, stranger: httpx2.AsyncClient) -> None:
    await sign_in(stranger, cluster.worker_token)
    answer = await stranger.get("/")
    assert answer.status_code == 403
    assert "scope" in Page(answer.text).text
