"""Signing in and out in real browsers: links, forms of other sites, and sessions that end elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Page, expect

from tests.browser.conftest import PATIENCE_MS, Site


async def link_of(site: Site) -> str:
    async with site.running.client() as client:
        return site.url + (await client.login_link()).path


@asynccontextmanager
async def visiting(site: Site) -> AsyncIterator[Page]:
    """A browser with cookies of its own."""
    context = await site.browser.new_context(base_url=site.url)
    context.set_default_timeout(PATIENCE_MS)
    try:
        yield await context.new_page()
    finally:
        await context.close()


async def test_a_link_signs_in_the_browser_that_confirms_it(empty_site: Site) -> None:
    link = await link_of(empty_site)
    async with visiting(empty_site) as one, visiting(empty_site) as two:
        for page in (two, one):
            await page.goto(link)
            await expect(page.get_by_role("main")).to_contain_text("Sign this browser in with token admin")
        await one.get_by_role("button", name="Sign in").click()
        await one.wait_for_url(empty_site.url + "/")
        await two.get_by_role("button", name="Sign in").click()
        await expect(two.get_by_role("alert")).to_contain_text("This login link was used or has expired")
        await two.goto("/jobs")
        await expect(two.get_by_label("Token")).to_be_visible()


@asynccontextmanager
async def other_site(html: str) -> AsyncIterator[str]:
    """A page of another origin."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = html.encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://localhost:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


async def test_another_site_cannot_sign_a_browser_in(empty_site: Site) -> None:
    form = (
        f'<form method="post" action="{empty_site.url}/login"><input name="token" value="{empty_site.running.token}">'
        '<input name="proof" value=""></form><script>document.forms[0].submit()</script>'
    )
    async with visiting(empty_site) as page, other_site(form) as address:
        await page.goto("/login")  # so that the browser has a cookie of the form
        await page.goto(address)
        await page.wait_for_url(empty_site.url + "/login")
        await expect(page.get_by_role("alert")).to_contain_text("Cross-site request refused")
        await page.goto("/jobs")
        await expect(page.get_by_label("Token")).to_be_visible()


async def test_a_browser_that_is_signed_out_elsewhere_stops_at_once(empty_site: Site) -> None:
    async with empty_site.visitor() as (mine, _), visiting(empty_site) as other:
        await other.goto(await link_of(empty_site))
        await other.get_by_role("button", name="Sign in").click()
        await expect(other.locator("#live-word")).to_have_text("Live")
        page = await mine.new_page()
        await page.goto("/settings#sessions")
        await expect(page.get_by_text("this browser")).to_be_visible()
        await page.get_by_role("button", name="End all other sessions").click()
        await expect(page.get_by_role("button", name="End all other sessions")).to_have_count(0)
        await expect(other.locator("#live-word")).to_have_text("Signed out")
