"""HTTP requests to an issuer: bounded in size and time, never redirected, and only to addresses it may name.

The issuer's own host is what the operator configured, so it may be private. Other hosts that its documents name must be
public, or in a network that the operator allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from mainspring.domain.address import Network
from mainspring.domain.errors import MainspringError, Unavailable
from mainspring.domain.issuer import is_secure
from mainspring.http_client import HttpClient, HttpError, InvalidRequest
from mainspring.http_client.request import split_url
from mainspring.outbound import addresses

TIMEOUT_S = 10.0
CONNECT_S = 5.0
MAX_BYTES = 256 * 1024
MAX_CLIENTS = 8
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class IssuerUnavailable(Unavailable):
    """The issuer does not answer, or not as it should. `reason` is for the log."""

    code = "issuer_unavailable"

    def __init__(self, reason: str) -> None:
        super().__init__("the identity provider is not available; try again later")
        self.reason = reason


class IssuerHttp:
    """Sends requests to the hosts of one issuer."""

    def __init__(self, issuer_url: str, allowed: Sequence[Network] = ()) -> None:
        self._own_host = urlsplit(issuer_url).hostname
        self._is_local = urlsplit(issuer_url).scheme == "http"
        self._allowed = allowed
        self._clients: dict[str, HttpClient] = {}

    async def get(self, url: str) -> dict[str, Any]:
        """Return the JSON object at a URL."""
        status, body = await self._request("GET", url, None, {})
        if status != 200:
            raise IssuerUnavailable(f"{url} answered {status}")
        return body

    async def post(
        self, url: str, form: Mapping[str, str], *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Send a form; return the status and the JSON object of the response."""
        return await self._request("POST", url, urlencode(form).encode(), {**FORM, **(headers or {})})

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def check_url(self, url: Any) -> str:
        """Return a URL that a document of the issuer names. Plain http only of an issuer on this machine."""
        if not isinstance(url, str) or not url.isascii() or len(url) > 2000:
            raise IssuerUnavailable("the issuer names an invalid URL")
        try:
            secure = is_secure(url) and (self._is_local or urlsplit(url).scheme == "https")
        except ValueError:
            secure = False
        if not secure:
            raise IssuerUnavailable("the issuer names a URL that is not https")
        return url

    async def _request(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, Any]]:
        try:
            origin, parts = split_url(self.check_url(url))
            client = self._client(f"{origin.scheme}://{origin.host}", origin.name)
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            sent = {"Accept": "application/json", "User-Agent": "mainspring", **headers}
            async with asyncio.timeout(TIMEOUT_S):
                response = await client.request(
                    method, target, body, headers=sent, timeout_s=TIMEOUT_S, max_bytes=MAX_BYTES
                )
        except IssuerUnavailable:
            raise
        except TimeoutError:
            raise IssuerUnavailable(f"{url}: no answer within {TIMEOUT_S:g} s") from None
        except (HttpError, InvalidRequest, OSError, MainspringError) as error:
            raise IssuerUnavailable(f"{url}: {error}") from None
        try:
            return response.status, msgspec.json.decode(response.body or b"{}", type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError):
            raise IssuerUnavailable(f"{url} answered {response.status} without a JSON object") from None

    def _client(self, server: str, host: str) -> HttpClient:
        client = self._clients.get(server)
        if client is None:
            if len(self._clients) >= MAX_CLIENTS:
                self.close()
            resolve = None if host == self._own_host else self._resolve
            client = HttpClient(server, {}, env={}, resolve=resolve, connect_s=CONNECT_S, max_connections=4)
            self._clients[server] = client
        return client

    async def _resolve(self, host: str, port: int) -> list[str]:
        return await addresses(host, port, self._allowed)
