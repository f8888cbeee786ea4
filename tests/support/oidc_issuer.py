"""A small identity provider in a process of its own, with real keys: OpenID Connect discovery, JWK set, authorization
code with PKCE (RFC 7636), device flow (RFC 8628), refresh tokens that work once, revocation (RFC 7009).

`python -m tests.support.oidc_issuer ALGORITHM HOST` prints its port and serves. Users sign in by themselves: what a
user decides in reality, tests decide by `/_control`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import secrets
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit
from urllib.request import Request, urlopen

from tests.support.jwt_signing import new_key, public_jwk, signed

AUDIENCE = "mainspring-api"
WEB_CLIENT, WEB_SECRET = "mainspring-web", "web client secret:/%"
DEVICE_CLIENT = "mainspring-cli"
PENDING = {"error": "authorization_pending"}


@dataclass
class Issuer:
    """The state of the provider. Handlers run in threads, one request at a time under `lock` of the server."""

    url: str
    algorithm: str
    keys: dict[str, Any] = field(default_factory=dict)
    published: list[str] = field(default_factory=list)
    current: str = ""
    subject: str = "alice"
    claims: dict[str, Any] = field(default_factory=dict)
    lifetime_s: float = 300.0
    redirect_uri: str = ""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    devices: dict[str, str] = field(default_factory=dict)
    refresh: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    last_id_token: str = ""
    override: dict[str, Any] = field(default_factory=dict)
    """Claims of id tokens that are not as they should be."""

    def rotate(self) -> str:
        self.current = f"key-{len(self.keys) + 1}"
        self.keys[self.current] = new_key(self.algorithm)
        self.published.append(self.current)
        return self.current

    def mint(self, audience: str, claims: dict[str, Any], header: dict[str, Any] | None = None) -> str:
        now = time.time()
        body = {
            "iss": self.url,
            "jti": secrets.token_urlsafe(8),
            "sub": self.subject,
            "aud": audience,
            "iat": int(now),
            "nbf": int(now),
            "exp": int(now + self.lifetime_s),
            **self.claims,
            **claims,
        }
        head = {"alg": self.algorithm, "kid": self.current, "typ": "JWT", **(header or {})}
        return signed(self.keys[self.current], head, {k: v for k, v in body.items() if v is not None})

    def tokens(self, client: str, nonce: str = "") -> dict[str, Any]:
        refresh = secrets.token_urlsafe(16)
        self.refresh[refresh] = client
        self.last_id_token = self.mint(client, {**({"nonce": nonce} if nonce else {}), **self.override})
        return {
            "access_token": self.mint(AUDIENCE, {}),
            "id_token": self.last_id_token,
            "refresh_token": refresh,
            "token_type": "Bearer",
            "expires_in": self.lifetime_s,
        }


def metadata(issuer: Issuer) -> dict[str, Any]:
    return {
        "issuer": issuer.url,
        "jwks_uri": f"{issuer.url}/jwks",
        "authorization_endpoint": f"{issuer.url}/authorize",
        "token_endpoint": f"{issuer.url}/token",
        "device_authorization_endpoint": f"{issuer.url}/device_authorization",
        "revocation_endpoint": f"{issuer.url}/revoke",
    }


def jwks(issuer: Issuer) -> dict[str, Any]:
    return {"keys": [public_jwk(issuer.keys[kid], kid, issuer.algorithm) for kid in issuer.published]}


def authorize(issuer: Issuer, query: dict[str, str]) -> str | None:
    """The address to send the browser back to; None: the request is wrong, and the browser stays."""
    wanted = {"response_type": "code", "client_id": WEB_CLIENT, "code_challenge_method": "S256"}
    if (
        any(query.get(name) != value for name, value in wanted.items())
        or query.get("redirect_uri") != issuer.redirect_uri
    ):
        return None
    code = secrets.token_urlsafe(16)
    issuer.codes[code] = query
    return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state'], 'iss': issuer.url})}"


def token(issuer: Issuer, form: dict[str, str], basic: str) -> tuple[int, dict[str, Any]]:
    match form.get("grant_type"):
        case "authorization_code":
            return _by_code(issuer, form, basic)
        case "refresh_token":
            client = issuer.refresh.pop(form.get("refresh_token", ""), None)
            known = client is not None and client == form.get("client_id")
            return (200, issuer.tokens(str(client))) if known else (400, {"error": "invalid_grant"})
        case "urn:ietf:params:oauth:grant-type:device_code":
            state = issuer.devices.get(form.get("device_code", ""))
            if state == "approved":
                del issuer.devices[form["device_code"]]
                return 200, issuer.tokens(DEVICE_CLIENT)
            return 400, PENDING if state == "pending" else {"error": "access_denied" if state else "expired_token"}
    return 400, {"error": "unsupported_grant_type"}


def _by_code(issuer: Issuer, form: dict[str, str], basic: str) -> tuple[int, dict[str, Any]]:
    asked = issuer.codes.pop(form.get("code", ""), None)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest()).rstrip(b"=")
    client = f"{quote(WEB_CLIENT, safe='')}:{quote(WEB_SECRET, safe='')}"
    if basic != "Basic " + base64.b64encode(client.encode()).decode():
        return 401, {"error": "invalid_client"}
    if asked is None or asked["code_challenge"] != challenge.decode() or asked["redirect_uri"] != form["redirect_uri"]:
        return 400, {"error": "invalid_grant"}
    return 200, issuer.tokens(WEB_CLIENT, asked.get("nonce", ""))


def control(issuer: Issuer, order: dict[str, Any]) -> Any:
    match order.pop("do"):
        case "mint":
            return issuer.mint(order.pop("audience", AUDIENCE), order.get("claims", {}), order.get("header"))
        case "sign":  # whatever the text of the claims
            header = {"alg": issuer.algorithm, "kid": issuer.current}
            return signed(issuer.keys[issuer.current], header, order["claims"].encode())
        case "rotate":
            return issuer.rotate()
        case "withdraw":
            issuer.published.remove(order["kid"])
        case "set":
            for name, value in order.items():
                setattr(issuer, name, value)
        case "decide":
            waiting = [code for code, state in issuer.devices.items() if state == "pending"]
            issuer.devices.update(dict.fromkeys(waiting, order["state"]))
            return len(waiting)
        case "counts":
            return dict(issuer.counts)
        case "last_id_token":
            return issuer.last_id_token
    return None


def handler(issuer: Issuer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            issuer.counts[parts.path] += 1
            pages: dict[str, Callable[[Issuer], dict[str, Any]]] = {
                "/.well-known/openid-configuration": metadata,
                "/jwks": jwks,
            }
            if parts.path in pages:
                self.answer(200, pages[parts.path](issuer))
            elif parts.path == "/authorize" and (to := authorize(issuer, dict(parse_qsl(parts.query)))) is not None:
                self.answer(302, {}, Location=to)
            else:
                self.answer(404, {})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            issuer.counts[self.path] += 1
            if self.path == "/_control":
                self.answer(200, {"result": control(issuer, json.loads(body))})
                return
            form = dict(parse_qsl(body.decode()))
            if self.path == "/token":
                self.answer(*token(issuer, form, self.headers.get("authorization", "")))
            elif self.path == "/device_authorization" and form.get("client_id") == DEVICE_CLIENT:
                code = secrets.token_urlsafe(16)
                issuer.devices[code] = "pending"
                page = f"{issuer.url}/device"
                uris = {"verification_uri": page, "verification_uri_complete": f"{page}?user_code=WDJB-MJHT"}
                self.answer(
                    200, {"device_code": code, "user_code": "WDJB-MJHT", "expires_in": 60, "interval": 0.2, **uris}
                )
            elif self.path == "/revoke":
                issuer.refresh.pop(form.get("token", ""), None)
                self.answer(200, {})
            else:
                self.answer(404, {})

        def answer(self, status: int, body: dict[str, Any], **headers: str) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


class Provider:
    """A running provider, as tests use it."""

    def __init__(self, host: str, port: int) -> None:
        self.url = f"http://{host}:{port}"

    async def control(self, do: str, **order: Any) -> Any:
        body = json.dumps({"do": do, **order}).encode()
        return await asyncio.to_thread(_post, f"{self.url}/_control", body)

    async def mint(self, *, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """An access token; a claim that is None is left out."""
        found: str = await self.control("mint", claims=claims, header=header)
        return found

    async def count(self, path: str) -> int:
        found: int = (await self.control("counts")).get(path, 0)
        return found


def _post(url: str, body: bytes) -> Any:
    with urlopen(Request(url, body), timeout=30) as response:
        return json.load(response)["result"]


@contextlib.asynccontextmanager
async def provider(algorithm: str = "RS256", *, host: str = "127.0.0.1") -> AsyncIterator[Provider]:
    """A provider in a process of its own. With `host="localhost"` it is another site for browsers."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.oidc_issuer", algorithm, host, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield Provider(host, int(await process.stdout.readline()))
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


def serve(algorithm: str, host: str) -> None:
    issuer = Issuer("", algorithm)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(issuer))
    issuer.url = f"http://{host}:{server.server_port}"
    issuer.rotate()
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    serve(*sys.argv[1:])
