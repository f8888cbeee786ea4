"""Authentication: bearer tokens for programs, signed cookies for browsers."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from starlette.requests import Request

from mainspring.clock import Clock, SystemClock
from mainspring.domain.errors import Forbidden, Unauthenticated
from mainspring.intake.validate.queue_bounds import EXCEED_SCOPE
from mainspring.store import audit, tokens
from mainspring.store.db import Connection, Database
from mainspring.store.tokens import Token

PUBLIC = ("/healthz", "/readyz", "/login")
"""The only paths served without a credential; exact matches."""
COOKIE = "mainspring_session"
COOKIE_S = 12 * 3600
LINK_S = 3600
TOKEN_CACHE_S = 5.0
"""A revoked token may still work this long."""
MOST_CACHED_TOKENS = 10_000
PREFIX = "ms_"


@dataclass(frozen=True, slots=True)
class Caller:
    """The principal of a request: its tenant and scopes, and whether it uses a browser."""

    tenant: int
    name: str
    scopes: frozenset[str]
    token_id: UUID
    csrf: str | None = None  # set for browser sessions: every change must include it
    tenant_name: str = ""
    schedule_quota: int | None = None  # overrides the server's

    def may(self, scope: str) -> bool:
        return scope in self.scopes or "admin" in self.scopes

    @property
    def may_exceed(self) -> bool:
        """Whether it may create jobs whose timeout exceeds their queue's bound."""
        return self.may(EXCEED_SCOPE)

    def demand(self, scope: str) -> None:
        if not self.may(scope):
            raise Forbidden(f"this token lacks the scope {scope!r}")


def new_token() -> tuple[str, bytes]:
    """Return a new token and the digest to store."""
    token = PREFIX + secrets.token_urlsafe(32)
    return token, digest(token)


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


async def issue_token(
    connection: Connection,
    *,
    tenant: int,
    name: str,
    scopes: tuple[str, ...],
    expires_at: datetime | None = None,
    by: str | None = None,
    schedule_quota: int | None = None,
) -> str:
    """Create a token and return it; only its digest is stored. With `by`, record it in the audit log."""
    token, hashed = new_token()
    token_id = uuid4()
    await tokens.insert_token(
        connection,
        tenant=tenant,
        token_id=token_id,
        name=name,
        digest=hashed,
        scopes=scopes,
        expires_at=expires_at,
        schedule_quota=schedule_quota,
    )
    if by is not None:
        expires = None if expires_at is None else expires_at.isoformat()
        await audit.record(
            connection,
            "token.create",
            token_id,
            tenant=tenant,
            by=by,
            name=name,
            scopes=list(scopes),
            expires_at=expires,
        )
    return token


def header(scope: Mapping[str, Any], name: bytes) -> str | None:
    """Return a request header by its lower-case name; the first one, as in Starlette."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)


def _caller(token: Token) -> Caller:
    return Caller(token.tenant, token.name, token.scopes, token.token_id, None, token.tenant_name, token.schedule_quota)


class Authenticator:
    """Finds the caller of a request. A revoked token stops working within `TOKEN_CACHE_S`, in browsers too."""

    def __init__(self, database: Database, *, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()
        self._key = b""
        self._known: dict[bytes | UUID, tuple[Caller, float]] = {}
        self._lookups: dict[bytes | UUID, asyncio.Task[Caller | None]] = {}

    async def open(self) -> None:
        async with self._database.connection() as connection:
            self._key = await tokens.server_key(connection, name="cookies")

    async def caller(self, request: Request) -> Caller:
        given = header(request.scope, b"authorization")
        if given is not None:
            scheme, _, credential = given.partition(" ")
            if scheme.lower() != "bearer" or not credential:
                raise Unauthenticated("send the token as `Authorization: Bearer ms_…`")
            return await self.by_token(credential.strip())
        if cookie := request.cookies.get(COOKIE):
            return await self._by_cookie(cookie)
        raise Unauthenticated("authentication required: send a token as `Authorization: Bearer ms_…`")

    async def by_token(self, credential: str) -> Caller:
        caller = await self._find(digest(credential))
        if caller is None:
            raise Unauthenticated("invalid token: unknown, expired or revoked")
        return caller

    def login_key(self, token_id: UUID) -> str:
        """Return the key for a login link; it expires after an hour, or with its token."""
        return self._sign("login", token_id, LINK_S)

    async def cookie_for_key(self, key: str) -> str:
        """Return the session cookie for the key of a login link."""
        token_id = self._verify("login", key)
        if token_id is None or await self._find(token_id) is None:
            raise Unauthenticated("this login link has expired; get a new one with `mainspring ui`")
        return self._sign("cookie", token_id, COOKIE_S)

    async def cookie_for_token(self, credential: str) -> str:
        return self._sign("cookie", (await self.by_token(credential)).token_id, COOKIE_S)

    async def _by_cookie(self, cookie: str) -> Caller:
        token_id = self._verify("cookie", cookie)
        caller = None if token_id is None else await self._find(token_id)
        if caller is None:
            raise Unauthenticated("the session has expired; log in again")
        csrf = hmac.new(self._key, b"csrf:" + cookie.encode(), hashlib.sha256).hexdigest()
        return replace(caller, csrf=csrf)

    async def _find(self, credential: bytes | UUID) -> Caller | None:
        found = self._known.get(credential)
        now = self._clock.monotonic()
        if found is not None and now - found[1] < TOKEN_CACHE_S:
            return found[0]
        if (lookup := self._lookups.get(credential)) is None:
            # One query serves all: a fleet shares a token, and hundreds of requests arrive as its cache entry expires.
            lookup = self._lookups[credential] = asyncio.create_task(self._look_up(credential, now))
            lookup.add_done_callback(lambda _: self._lookups.pop(credential, None))
        return await asyncio.shield(lookup)

    async def _look_up(self, credential: bytes | UUID, now: float) -> Caller | None:
        async with self._database.connection() as connection:
            if isinstance(credential, UUID):
                token = await tokens.token_by_id(connection, token_id=credential)
            else:
                token = await tokens.token_by_digest(connection, digest=credential)
        self._known.pop(credential, None)
        if token is None:
            return None
        if len(self._known) > MOST_CACHED_TOKENS:
            self._known.clear()
        caller = _caller(token)
        self._known[credential] = (caller, now)
        return caller

    def _sign(self, purpose: str, token_id: UUID, seconds: int) -> str:
        payload = f"{token_id}.{int(self._clock.now_ms() / 1000) + seconds}"
        mac = hmac.new(self._key, f"{purpose}:{payload}".encode(), hashlib.sha256).digest()
        return f"{payload}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"

    def _verify(self, purpose: str, signed: str) -> UUID | None:
        payload, _, mac = signed.rpartition(".")
        token_id, _, expires = payload.partition(".")
        expected = hmac.new(self._key, f"{purpose}:{payload}".encode(), hashlib.sha256).digest()
        given = mac.encode()
        if not hmac.compare_digest(base64.urlsafe_b64encode(expected).rstrip(b"="), given):
            return None
        if int(expires) < self._clock.now_ms() / 1000:
            return None
        return UUID(token_id)
