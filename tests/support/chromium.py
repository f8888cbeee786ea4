"""The distribution's Chromium, driven from outside, with an eye on everything it complains of."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Request, async_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome-stable")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
_TELL_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) => {
  console.error(`policy: ${event.violatedDirective} refused ${event.blockedURI} ${event.sample}`);
});
"""


def program() -> str | None:
    """Where the browser is, if there is one."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


@asynccontextmanager
async def launched() -> AsyncIterator[Browser]:
    """A browser with a profile of its own that is gone afterwards."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program(), headless=True, args=list(FLAGS))
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class Watch:
    """What no page of ours may cause: errors on the console, refusals by its own policy, calls to other servers."""

    origin: str
    complaints: list[str] = field(default_factory=list)

    async def over(self, context: BrowserContext) -> None:
        context.on("console", self._console)
        context.on("weberror", lambda error: self.complaints.append(f"script: {error.error}"))
        context.on("request", self._request)
        await context.add_init_script(_TELL_VIOLATIONS)

    def _console(self, message: ConsoleMessage) -> None:
        refused = "status of 422" in message.text  # a form that came back: the browser tells its console of that
        if message.type in ("error", "warning") and not refused:
            self.complaints.append(f"console: {message.text} {message.location}")

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and f"{parts.scheme}://{parts.netloc}" != self.origin:
            self.complaints.append(f"asked another server: {request.url}")
