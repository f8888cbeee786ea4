"""Sign-in at an identity provider in a real browser: content security policy, and cookies that stay with their site."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.conftest import started
from tests.oidc.conftest import issuer_of
from tests.support.chromium import Watch, launched, program
from tests.support.oidc_issuer import WEB_CLIENT, WEB_SECRET, provider
from tests.support.processes import free_port

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.browser,
    pytest.mark.skipif(program() is None, reason="no browser; install chromium (`make install-system`)"),
]
PATIENCE_MS = 60_000


async def test_a_person_signs_in_from_another_site_and_out(database_url: str, tmp_path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    (tmp_path / "secret").write_text(WEB_SECRET)
    async with provider(host="localhost") as issuer, launched() as browser:
        await issuer.control("set", claims={"groups": ["staff"]}, redirect_uri=f"{url}/login/callback")
        sign_in = {"client-id": WEB_CLIENT, "client-secret-file": str(tmp_path / "secret"), "display-name": "Corp ID"}
        async with started(database_url, port=port, issuers=(issuer_of(issuer, **sign_in),), public_url=url):
            context = await browser.new_context(base_url=url)
            context.set_default_timeout(PATIENCE_MS)
            watch = Watch(issuer.url)
            page = await context.new_page()
            context.on("console", watch._console)
            await page.goto("/jobs")
            await page.get_by_role("button", name="Sign in with Corp ID").click()
            await page.wait_for_url(f"{url}/jobs")
            await expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible(timeout=PATIENCE_MS)
            cookies = {cookie["name"]: cookie["sameSite"] for cookie in await context.cookies()}
            assert cookies["mainspring_session"] == "Strict" and "mainspring_sign_in" not in cookies
            await page.goto("/settings")
            await page.get_by_role("button", name="Sign out").first.click()
            await expect(page.get_by_role("button", name="Sign in with Corp ID")).to_be_visible(timeout=PATIENCE_MS)
            await context.close()
            assert watch.complaints == []
