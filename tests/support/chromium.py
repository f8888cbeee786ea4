"""Start the distribution's Chromium and collect its errors."""

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
_LOG_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) => {
  console.error(`policy: ${event.violatedDirective} refused ${event.blockedURI} ${event.sample}`);
});
"""


def program() -> str | None:
    """Return the path of the browser, if there is one."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


@asynccontextmanager
async def launched() -> AsyncIterator[Browser]:
    """Start a browser with a temporary profile."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program(), headless=True, args=list(FLAGS))
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class Watch:
    """Collects console errors, content security policy violations and requests to other servers."""

    origin: str
    complaints: list[str] = field(default_factory=list)

    async def over(self, context: BrowserContext) -> None:
        context.on("console", self._console)
        context.on("weberror", lambda error: self.complaints.append(f"script: {error.error}"))
        context.on("request", self._request)
        await context.add_init_script(_LOG_VIOLATIONS)

    def _console(self, message: ConsoleMessage) -> None:
        refused = "status of 422" in message.text  # browsers log the 422 of a refused form to the console
        if message.type in ("error", "warning") and not refused:
            self.complaints.append(f"console: {message.text} {message.location}")

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and f"{parts.scheme}://{parts.netloc}" != self.origin:
            self.complaints.append(f"request to another server: {request.url}")
