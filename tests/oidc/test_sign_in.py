"""Sign-in of a browser at an identity provider: authorization code with PKCE."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from mainspring.api.auth import COOKIE
from mainspring.api.federated import CALLBACK
from mainspring.web.pages.login import SIGN_IN_COOKIE
from tests.conftest import Cluster
from tests.oidc.conftest import PUBLIC_URL, auth_of, bearer
from tests.support.oidc_issuer import AUDIENCE, WEB_CLIENT, Provider
from tests.support.pages import NAVIGATION, Page, open_page

pytestmark = pytest.mark.anyio
CROSS_SITE = {"sec-fetch-site": "cross-site"}


@pytest.fixture
async def browser(federated: Cluster) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=federated.url, headers=NAVIGATION, trust_env=False, timeout=30) as browser:
        yield browser


@pytest.fixture
async def other(federated: Cluster) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=federated.url, headers=NAVIGATION, trust_env=False, timeout=30) as browser:
        yield browser


def form_of(page: Page) -> dict[str, str]:
    """The fields of the form of the identity provider: the first of the page."""
    found: dict[str, str] = {}
    for field in page.all("input"):
        name = field.get("name") or ""
        if name not in found:
            found[name] = field.get("value") or ""
    return {name: found[name] for name in ("proof", "then", "issuer")}


def refresh_of(answer: httpx2.Response) -> str:
    """Where a page sends the browser on to."""
    meta = next(m for m in Page(answer.text).all("meta") if m.get("http-equiv") == "refresh")
    return str(meta["content"]).removeprefix("0;url=")


async def begin(browser: httpx2.AsyncClient, then: str = "/jobs") -> str:
    """Choose the identity provider; return the address at which the browser signs in."""
    page = await open_page(browser, f"/login?then={then}")
    assert "Sign in with Corp ID" in page.text
    answer = await browser.post("/login", data=form_of(page))
    assert answer.status_code == 200, answer.text
    return refresh_of(answer)


async def approve(address: str) -> str:
    """Sign in at the identity provider; return the path and query of the callback."""
    async with httpx2.AsyncClient(trust_env=False) as elsewhere:
        answer = await elsewhere.get(address)
    assert answer.status_code == 302, (address, answer.text)
    back = answer.headers["location"]
    assert back.startswith(f"{PUBLIC_URL}{CALLBACK}?")
    return back.removeprefix(PUBLIC_URL)


async def sign_in(browser: httpx2.AsyncClient, then: str = "/jobs") -> httpx2.Response:
    return await browser.get(await approve(await begin(browser, then)), headers=CROSS_SITE)


async def is_signed_in(browser: httpx2.AsyncClient) -> bool:
    return (await browser.get("/jobs")).status_code == 200


async def test_a_browser_signs_in_and_out(federated: Cluster, issuer: Provider, browser: httpx2.AsyncClient) -> None:
    await issuer.control("set", subject="walter", claims={"groups": ["operators"], "preferred_username": "walter"})
    answer = await sign_in(browser, "/jobs?state=paused")
    assert answer.status_code == 200 and refresh_of(answer) == "/jobs?state=paused"
    cookie = next(c for c in answer.headers.get_list("set-cookie") if c.startswith(f"{COOKIE}=")).lower()
    assert {"httponly", "samesite=strict", "path=/"} <= set(cookie.split("; "))
    assert await is_signed_in(browser)
    page = await open_page(browser, "/settings")
    async with federated.client() as admin:
        user = next(u for u in (await admin.users(limit=500)).items if u.name.startswith("walter-"))
        assert user.role == "operator"
        assert [s.token for s in (await admin.browser_sessions()).items if s.token == "corp"] == ["corp"]
        await federated.context.bursts.write()
        begun = (await admin.audit(action="browser_session.begin", limit=100)).items
        assert any(entry.actor.startswith("walter-") for entry in begun), begun
    await browser.post("/logout", data={"csrf": page.csrf})
    assert not await is_signed_in(browser)


async def test_the_request_has_pkce_state_and_nonce(issuer: Provider, browser: httpx2.AsyncClient) -> None:
    address = await begin(browser)
    parts = urlsplit(address)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{issuer.url}/authorize"
    assert query["response_type"] == "code" and query["code_challenge_method"] == "S256"
    assert (query["client_id"], query["redirect_uri"]) == (WEB_CLIENT, f"{PUBLIC_URL}{CALLBACK}")
    assert min(len(query[name]) for name in ("state", "nonce", "code_challenge")) >= 43
    assert urlsplit(await begin(browser)).query != parts.query, "each sign-in has its own"


async def test_a_sign_in_is_completed_once(browser: httpx2.AsyncClient, other: httpx2.AsyncClient) -> None:
    back = await approve(await begin(browser))
    cookie = browser.cookies[SIGN_IN_COOKIE]
    assert (await browser.get(back, headers=CROSS_SITE)).status_code == 200
    for again in (browser, other):
        again.cookies.set(SIGN_IN_COOKIE, cookie)
        answer = await again.get(back, headers=CROSS_SITE)
        assert answer.status_code == 401 and "could not be completed" in answer.text
    assert await is_signed_in(browser) and not await is_signed_in(other)


async def test_a_completed_state_does_not_work_with_a_new_code(federated: Cluster, browser: httpx2.AsyncClient) -> None:
    address = await begin(browser)
    cookie = browser.cookies[SIGN_IN_COOKIE]
    assert (await browser.get(await approve(address), headers=CROSS_SITE)).status_code == 200
    browser.cookies.set(SIGN_IN_COOKIE, cookie)
    again = await approve(address)  # the identity provider issues another code for the same request
    assert (await browser.get(again, headers=CROSS_SITE)).status_code == 401


async def test_the_callback_of_another_browser_signs_nobody_in(
    browser: httpx2.AsyncClient, other: httpx2.AsyncClient
) -> None:
    """Another site cannot sign a browser in as its own user."""
    back = await approve(await begin(browser))
    assert (await other.get(back, headers=CROSS_SITE)).status_code == 401
    await begin(other)
    assert (await other.get(back, headers=CROSS_SITE)).status_code == 401, "with a sign-in of its own"
    assert not await is_signed_in(other)
    assert (await browser.get(back, headers=CROSS_SITE)).status_code == 200, "it was not used up"


@pytest.mark.parametrize("change", ["state", "code", "iss", "no code", "cookie"])
async def test_a_changed_callback_is_refused(browser: httpx2.AsyncClient, change: str) -> None:
    back = await approve(await begin(browser))
    query = {name: values[0] for name, values in parse_qs(urlsplit(back).query).items()}
    if change == "no code":
        del query["code"]
    elif change == "cookie":
        cookie = browser.cookies[SIGN_IN_COOKIE]
        browser.cookies.clear()
        browser.cookies.set(SIGN_IN_COOKIE, "x" + cookie[1:])
    else:
        query[change] = query[change][::-1]
    answer = await browser.get(CALLBACK, params=query, headers=CROSS_SITE)
    assert answer.status_code == 401 and COOKIE not in browser.cookies


async def test_a_sign_in_ends_at_a_path_of_this_server(browser: httpx2.AsyncClient) -> None:
    for then in ("https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)"):
        assert refresh_of(await sign_in(browser, then)) == "/", then


async def test_forms_of_other_sites_begin_no_sign_in(browser: httpx2.AsyncClient) -> None:
    form = form_of(await open_page(browser, "/login"))
    assert (await browser.post("/login", data=form, headers=CROSS_SITE)).status_code == 403
    assert (await browser.post("/login", data={**form, "proof": "x"})).status_code == 403
    form = form_of(await open_page(browser, "/login"))
    assert (await browser.post("/login", data={**form, "issuer": "unknown"})).status_code == 401


async def test_an_old_sign_in_is_refused(
    federated: Cluster, browser: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = await approve(await begin(browser))
    monkeypatch.setattr("mainspring.api.federated.SIGN_IN_S", -1)
    assert (await browser.get(back, headers=CROSS_SITE)).status_code == 401


async def test_an_account_without_a_role_is_refused_with_a_reason(
    issuer: Provider, browser: httpx2.AsyncClient
) -> None:
    await issuer.control("set", subject="nora", claims={"groups": []})
    answer = await sign_in(browser)
    assert answer.status_code == 403 and "match no tenant or role" in answer.text
    await issuer.control("set", subject="alice", claims={"groups": ["staff"]})


async def test_an_id_token_for_another_sign_in_or_client_is_refused(
    issuer: Provider, browser: httpx2.AsyncClient
) -> None:
    for wrong in (
        {"nonce": "another"},
        {"aud": "another"},
        {"aud": [WEB_CLIENT, "b"]},
        {"azp": "b"},
        {"iat": 1, "nbf": 1},
    ):
        await issuer.control("set", subject="alice", claims={"groups": ["staff"]}, override=wrong)
        assert (await sign_in(browser)).status_code == 401, wrong
    await issuer.control("set", override={})
    assert (await sign_in(browser)).status_code == 200


async def test_an_id_token_is_not_a_bearer_token(
    federated: Cluster, issuer: Provider, browser: httpx2.AsyncClient, http: httpx2.AsyncClient
) -> None:
    assert (await sign_in(browser)).status_code == 200
    id_token = await issuer.control("last_id_token")
    assert AUDIENCE != WEB_CLIENT
    assert (await http.get("/api/v1/jobs", headers=bearer(id_token))).status_code == 401


async def test_a_blocked_user_is_signed_out_and_cannot_sign_in(
    federated: Cluster, issuer: Provider, browser: httpx2.AsyncClient
) -> None:
    await issuer.control("set", subject="oscar", claims={"groups": ["staff"], "preferred_username": "oscar"})
    assert (await sign_in(browser)).status_code == 200
    assert await is_signed_in(browser)
    async with federated.client() as admin:
        user = next(u for u in (await admin.users(limit=500)).items if u.name.startswith("oscar-"))
        await admin.block_user(user.name)
        assert not await is_signed_in(browser)
        assert (await sign_in(browser)).status_code == 401
        await admin.unblock_user(user.name)
        assert (await sign_in(browser)).status_code == 200
    await issuer.control("set", subject="alice", claims={"groups": ["staff"]})


async def test_the_secret_of_the_client_is_in_no_answer(federated: Cluster, browser: httpx2.AsyncClient) -> None:
    answer = await browser.get("/login", headers={"accept": "application/json"})
    (shown,) = answer.json()["issuers"]
    assert set(shown) == {"name", "display_name", "url", "client_id", "scopes"}
    assert "secret" not in answer.text and auth_of(federated).providers[0]._secret not in (None, "")
