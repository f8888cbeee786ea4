"""The headers of every response: browsers must not guess its type, and nothing may store it."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mainspring.api.problem import SAFE_HEADERS

RawHeaders = list[tuple[bytes, bytes]]


def add_safe_headers(headers: RawHeaders) -> None:
    """Add those that are missing: static files have a Cache-Control of their own."""
    present = {name for name, _ in headers}
    headers.extend(header for header in SAFE_HEADERS if header[0] not in present)


class SafeHeaders:
    """ASGI middleware that adds them to the responses of pages, health checks, redirects and unknown paths."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def add_and_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                add_safe_headers(headers)
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, add_and_send)
