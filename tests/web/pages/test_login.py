from __future__ import annotations

import base64
import hashlib
import re

import httpx2
import pytest

from mainspring.api.auth import COOKIE, issue_token
from mainspring.cli.serve import DEFAULT_TENANT
from tests.conftest import Cluster
from tests.support.pages import Page, open_page

pytestmark = pytest.mark.anyio


async def test_a_link_signs_a_browser_in(cluster: Cluster, stranger: httpx2.AsyncClient) -> None:
    caller = await cluster.context.auth.by_token(cluster.token)
    key = cluster.context.auth.login_key(caller.token_id)
    answer = await stranger.get("/login", params={"k": key, "then": "/jobs"})
    # Not a redirect: a Strict cookie would not travel with the first step after a link from elsewhere.
    assert answer.status_code == 200
    assert '<meta http-equiv="refresh" content="0;url=/jobs">' in answer.text
    cookie = answer.headers["set-cookie"].lower()
    assert cookie.startswith(f"{COOKIE}=")
    assert {"httponly", "samesite=strict", "path=/"} <= set(cookie.split("; "))
    assert "Jobs" in (await open_page(stranger, "/jobs")).text


async def test_a_token_signs_a_browser_in(cluster: Cluster, stranger: httpx2.AsyncClient) -> None:
    form = {"token": f" {cluster.token}\n", "then": "/workers"}
    answer = await stranger.post("/login", data=form)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/workers"
    assert "httponly" in answer.headers["set-cookie"].lower()
    assert "Workers" in (await open_page(stranger, "/workers")).text


@pytest.mark.parametrize("key", ["nonsense", "a.b.c", "é", "00000000-0000-0000-0000-000000000000.9999999999.AAAA"])
async def test_a_bad_link_is_refused(stranger: httpx2.AsyncClient, key: str) -> None:
    answer = await stranger.get("/login", params={"k": key})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "mainspring ui" in Page(answer.text).text


@pytest.mark.parametrize("token", ["", "ms_wrong", "<script>alert(1)</script>"])
async def test_a_bad_token_is_refused(stranger: httpx2.AsyncClient, token: str) -> None:
    answer = await stranger.post("/login", data={"token": token})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    page = Page(answer.text)
    assert "Invalid token" in page.text
    assert page.active_parts() == []


async def test_the_login_takes_forms_of_its_own_only(cluster: Cluster, stranger: httpx2.AsyncClient) -> None:
    elsewhere = {"sec-fetch-site": "cross-site"}
    answer = await stranger.post("/login", data={"token": cluster.token}, headers=elsewhere)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("then", ["https://example.com/", "//example.com", "/\\example.com", "javascript:alert(1)", ""])
async def test_nobody_is_sent_elsewhere(cluster: Cluster, stranger: httpx2.AsyncClient, then: str) -> None:
    answer = await stranger.post("/login", data={"token": cluster.token, "then": then})
    assert answer.headers["location"] == "/"


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


async def test_signing_out_ends_the_session(browser: httpx2.AsyncClient) -> None:
    csrf = (await open_page(browser, "/")).csrf
    answer = await browser.post("/logout", data={"csrf": csrf})
    assert answer.status_code == 303
    assert COOKIE not in browser.cookies
    assert (await browser.get("/")).headers["location"] == "/login"


async def test_a_reader_sees_no_buttons_and_may_sign_out(cluster: Cluster, stranger: httpx2.AsyncClient) -> None:
    async with cluster.database.connection() as connection:
        token = await issue_token(connection, tenant=DEFAULT_TENANT, name="reader", scopes=("read",))
    await stranger.post("/login", data={"token": token})
    page = await open_page(stranger, "/jobs")
    posting = [form for form in page.all("form") if form.get("method") == "post"]
    assert [form["action"] for form in posting] == ["/logout"]
    assert (await stranger.post("/jobs/x/pause", data={"csrf": page.csrf})).status_code == 403
    assert (await stranger.post("/logout", data={"csrf": page.csrf})).status_code == 303


async def test_a_worker_token_sees_no_pages(cluster: Cluster, stranger: httpx2.AsyncClient) -> None:
    await stranger.post("/login", data={"token": cluster.worker_token})
    answer = await stranger.get("/")
    assert answer.status_code == 403
    assert "scope" in Page(answer.text).text
