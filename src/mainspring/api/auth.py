"""Authentication: bearer tokens for programs, sessions with signed cookies for browsers."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from starlette.requests import Request

from mainspring.api.rate_limit import RequestLimits
from mainspring.clock import Clock, SystemClock
from mainspring.domain.errors import Forbidden, Invalid, Unauthenticated
from mainspring.domain.grants import WorkerGrants
from mainspring.domain.principal import Principal, check_token_name
from mainspring.domain.roles import CLUSTER_SCOPE, OF_CLUSTER, includes
from mainspring.intake.validate.queue_bounds import EXCEED_SCOPE
from mainspring.store import audit, browser_sessions, tokens
from mainspring.store.db import Connection, Database
from mainspring.store.tokens import NewToken, Token

PUBLIC = ("/healthz", "/readyz", "/login")
"""The only paths served without a credential; exact matches."""
SIGNED = ("/hooks/{trigger_id}",)
"""The only paths whose requests are authenticated by a signature of their body instead of a credential."""
COOKIE = "mainspring_session"
COOKIE_S = 12 * 3600
LINK_S = 3600
TOKEN_CACHE_S = 5.0
"""How long a valid credential is remembered. The bus says when one is revoked; this is for a message that was lost."""
MOST_CACHED_TOKENS = 10_000
CONCURRENT_NEW_LOOKUPS = 4
"""Unknown credentials that are looked up at once, so that strangers leave database connections to others."""
FIRST_TENANT = 1
"""The tenant in which the first token is issued."""
MAX_USER_AGENT_CHARS = 300
PREFIX = "ms_"


@dataclass(frozen=True, slots=True)
class Caller:
    """The principal of a request: its tenant and scopes, and whether it uses a browser."""

    tenant: int
    name: Principal
    scopes: frozenset[str]
    token_id: UUID
    csrf: str | None = None  # set for browser sessions: every change must include it
    tenant_name: str = ""
    grants: WorkerGrants | None = None  # of the scope `worker`; None: of a token from before there were any
    session_id: UUID | None = None  # of a browser session
    role: str | None = None
    principal_id: UUID | None = None  # of its user
    left_s: float | None = None  # from when it was looked up until it expires; None: it does not
    suspended: bool = False  # its tenant: only workers may report what runs
    expires_at: float | None = None  # by the monotonic clock; of a JWT, with which its streams end
    response_key: bytes | None = None  # encrypts stored responses of a caller whose credential changes, as JWTs do

    def may(self, scope: str) -> bool:
        return self.is_cluster_admin if scope == CLUSTER_SCOPE else includes(self.scopes, scope)

    @property
    def held(self) -> frozenset[str]:
        """The scopes that it has and so can grant."""
        return self.scopes | OF_CLUSTER if self.is_cluster_admin else self.scopes

    @property
    def is_restricted(self) -> bool:
        """Whether it may change and run only the jobs of some queues or labels."""
        return self.name.grants is not None

    @property
    def is_cluster_admin(self) -> bool:
        """Whether it may see the names of other tenants: an admin of the first tenant, or a token of that scope."""
        return CLUSTER_SCOPE in self.scopes or (self.tenant == FIRST_TENANT and "admin" in self.scopes)

    @property
    def visible_tenant(self) -> int | None:
        """The tenant whose names it may see; None: all."""
        return None if self.is_cluster_admin else self.tenant

    @property
    def may_exceed(self) -> bool:
        """Whether it may create jobs whose timeout exceeds their queue's bound."""
        return self.may(EXCEED_SCOPE)

    def demand(self, scope: str) -> None:
        if not self.may(scope):
            raise Forbidden(f"this token lacks the scope {scope!r}")

    def demand_active(self) -> None:
        """Refuse a caller of a suspended tenant."""
        if self.suspended:
            raise Forbidden(
                f"the tenant {self.tenant_name!r} is suspended; ask a cluster administrator", code="tenant_suspended"
            )

    def demand_unrestricted(self) -> None:
        """Refuse a token that may change and run only some jobs, where that is not checked job by job."""
        if self.is_restricted:
            raise Forbidden(
                "a token that is restricted to queues or labels can only create, change, run and cancel single jobs",
                code="not_granted",
            )

    def demand_grants(self, queues: Sequence[str], labels: Mapping[str, str], kinds: Sequence[str]) -> None:
        """Refuse a worker that registers for more than its token grants. An administrator can grant anything."""
        if self.grants is None or "admin" in self.scopes:
            return
        if refusals := tuple(self.grants.refusals(queues, labels, kinds)):
            first = refusals[0]
            raise Forbidden(f"{first.message}; {first.hint}", code="not_granted", problems=refusals)


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
    grants: WorkerGrants | None = None,
) -> str:
    """Create a token and return it; only its digest is stored. With `by`, record it in the audit log."""
    new = NewToken(name, scopes, expires_at=expires_at, schedule_quota=schedule_quota, grants=grants, created_by=by)
    return (await issue(connection, new, tenant=tenant))[0]


async def issue(
    connection: Connection, new: NewToken, *, tenant: int, action: str = "token.create"
) -> tuple[str, UUID]:
    """Create a token; return it with its id.

    A token with the scope `worker` needs `grants`: it can register for what they name, and for nothing else.
    """
    check_token_name(new.name)
    if "worker" in new.scopes and "admin" not in new.scopes and new.grants is None:
        new = replace(new, grants=WorkerGrants(()))
    if new.grants is not None and (problems := tuple(new.grants.problems())):
        raise Invalid(f"{problems[0].message} ({problems[0].hint})", problems=problems)
    token, hashed = new_token()
    token_id = uuid4()
    await tokens.insert_token(connection, new, tenant=tenant, token_id=token_id, digest=hashed)
    if new.created_by is not None:
        granted: dict[str, Any] = {} if new.grants is None else asdict(new.grants)
        await audit.record(
            connection,
            action,
            token_id,
            tenant=tenant,
            by=new.created_by,
            name=new.name,
            scopes=list(new.scopes),
            expires_at=None if new.expires_at is None else new.expires_at.isoformat(),
            **({} if new.role is None else {"role": new.role}),
            **({} if new.principal_id is None else {"user_id": str(new.principal_id)}),
            **granted,
        )
    return token, token_id


def header(scope: Mapping[str, Any], name: bytes) -> str | None:
    """Return a request header by its lower-case name; the first one, as in Starlette."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)


def client_address(request: Request) -> str:
    return request.client.host if request.client is not None else ""


Load = Callable[[Connection], Awaitable[Caller | None]]


class Authenticator:
    """Finds the caller of a request.

    Valid credentials are remembered for `TOKEN_CACHE_S`; `forget` drops one that was revoked. An address that keeps
    sending invalid credentials gets 429, and its unknown ones are not looked up any more.
    """

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock | None = None,
        limits: RequestLimits | None = None,
        schedule_quota: int = 0,
    ) -> None:
        """`schedule_quota`: of tokens without one of their own, per hour; 0: no limit."""
        self._database = database
        self._schedule_quota = schedule_quota or None
        self._clock = clock or SystemClock()
        self.limits = limits or RequestLimits(0.0)
        self._key = b""
        self._known: dict[bytes, tuple[Caller, float]] = {}
        self._lookups: dict[bytes, asyncio.Task[Caller | None]] = {}
        self._new_lookups = asyncio.Semaphore(CONCURRENT_NEW_LOOKUPS)
        self._forgotten = 0

    async def open(self) -> None:
        async with self._database.connection() as connection:
            self._key = await tokens.server_key(connection, name="cookies")

    async def close(self) -> None:
        """Release what `open` and requests have opened."""

    async def caller(self, request: Request) -> Caller:
        given = header(request.scope, b"authorization")
        if given is not None:
            scheme, _, credential = given.partition(" ")
            if scheme.lower() != "bearer" or not credential:
                raise Unauthenticated("send the token as `Authorization: Bearer ms_…`")
            return await self.by_token(credential.strip(), client_address(request))
        if cookie := request.cookies.get(COOKIE):
            return await self.caller_of_cookie(cookie, client_address(request))
        raise Unauthenticated("authentication required: send a token as `Authorization: Bearer ms_…`")

    async def by_token(self, credential: str, address: str = "") -> Caller:
        key = digest(credential)

        async def load(connection: Connection) -> Caller | None:
            token = await tokens.token_by_digest(connection, digest=key)
            if token is not None and token.unused:
                await tokens.use_token(connection, token_id=token.token_id)
            return None if token is None else self._caller(token)

        caller = await self._find(key, load, address)
        if caller is None:
            raise Unauthenticated("invalid token: unknown, expired or revoked")
        return caller

    # Browsers -------------------------------------------------------------------------------------------

    async def new_login_link(self, caller: Caller, *, database: Database | None = None) -> tuple[str, datetime]:
        """Return the key of a link that signs one browser in once, and when it expires."""
        key = self._new_secret("link")
        async with (database or self._database).connection() as connection:
            expires_at = await browser_sessions.insert_login_link(
                connection, tenant=caller.tenant, token_id=caller.token_id, digest=digest(key), seconds=LINK_S
            )
        return key, expires_at

    async def caller_of_link(self, key: str) -> Caller:
        """Return who a login link signs in, without using it."""
        token = None
        if self._is_signed("link", key):
            async with self._database.connection() as connection:
                token = await browser_sessions.login_link(connection, digest=digest(key))
        if token is None:
            raise Unauthenticated(_LINK_INVALID)
        return self._caller(token)

    async def cookie_for_link(self, key: str, *, address: str = "", user_agent: str = "") -> str:
        """Use a login link, and return the cookie of a new session."""
        async with self._database.transaction() as connection:
            signed = self._is_signed("link", key)
            token = await browser_sessions.use_login_link(connection, digest=digest(key)) if signed else None
            if token is None:
                raise Unauthenticated(_LINK_INVALID)
            return await self._new_session(connection, self._caller(token), address, user_agent)

    async def cookie_for_token(self, credential: str, *, address: str = "", user_agent: str = "") -> str:
        """Return the cookie of a new session."""
        caller = await self.by_token(credential, address)
        async with self._database.connection() as connection:
            return await self._new_session(connection, caller, address, user_agent)

    def is_familiar(self, credential: str) -> bool:
        """Whether this token was valid some time ago, so that it is looked up whatever its address has sent since."""
        return digest(credential) in self._known

    def new_login_nonce(self) -> str:
        """Return a value for a cookie that ties the login form to the browser that loaded it."""
        return self._new_secret("nonce")

    def login_proof(self, nonce: str, key: str) -> str:
        """Return what the form sends back: only a page of this server, loaded by that browser, contains it."""
        return hmac.new(self._key, f"login:{nonce}:{key}".encode(), hashlib.sha256).hexdigest()

    def check_login(self, nonce: str, key: str, proof: str) -> None:
        expected = self.login_proof(nonce, key).encode()
        if not self._is_signed("nonce", nonce) or not hmac.compare_digest(expected, proof.encode()):
            raise Forbidden("the form was not loaded by this browser, or has expired; submit it again")

    async def _new_session(self, connection: Connection, caller: Caller, address: str, user_agent: str) -> str:
        cookie = self._new_secret("cookie")
        if not await browser_sessions.insert_browser_session(
            connection,
            tenant=caller.tenant,
            token_id=caller.token_id,
            session_id=uuid4(),
            digest=digest(cookie),
            seconds=COOKIE_S,
            address=address,
            user_agent=user_agent.replace("\0", "")[:MAX_USER_AGENT_CHARS],
        ):
            raise Unauthenticated("invalid token: unknown, expired or revoked")
        return cookie

    async def caller_of_cookie(self, cookie: str, address: str) -> Caller:
        key = digest(cookie)

        async def load(connection: Connection) -> Caller | None:
            found = await browser_sessions.browser_session_by_digest(connection, digest=key)
            if found is None:
                return None
            if found.unseen:
                await browser_sessions.see_browser_session(connection, session_id=found.session_id)
                await tokens.use_token(connection, token_id=found.token.token_id)
            csrf = hmac.new(self._key, b"csrf:" + cookie.encode(), hashlib.sha256).hexdigest()
            return replace(self._caller(found.token), csrf=csrf, session_id=found.session_id)

        # A cookie that this server did not sign is refused without a query.
        caller = await self._find(key, load, address) if self._is_signed("cookie", cookie) else None
        if caller is None:
            raise Unauthenticated("the session has expired; log in again")
        return caller

    # The cache ------------------------------------------------------------------------------------------

    def forget(self, credential_id: UUID) -> None:
        """Drop what is remembered of a token or browser session that has ended."""
        self._forgotten += 1
        ended = [k for k, (caller, _) in self._known.items() if credential_id in (caller.token_id, caller.session_id)]
        for key in ended:
            del self._known[key]

    def expire_all(self) -> None:
        """Look every credential up again before its next use: messages about revoked ones may have been lost."""
        self._forgotten += 1
        self._known = {key: (caller, float("-inf")) for key, (caller, _) in self._known.items()}

    async def _find(self, key: bytes, load: Load, address: str) -> Caller | None:
        found = self._known.get(key)
        now = self._clock.monotonic()
        if found is not None and now - found[1] < TOKEN_CACHE_S:
            return found[0]
        counted = False
        if (lookup := self._lookups.get(key)) is None:
            # One query serves all: a fleet shares a token, and hundreds of requests arrive as its cache entry expires.
            work = self._look_up(key, load, now) if found is not None else self._look_up_new(key, load, address)
            counted = found is None
            lookup = self._lookups[key] = asyncio.create_task(work)
            lookup.add_done_callback(lambda _: self._lookups.pop(key, None))
        caller = await asyncio.shield(lookup)
        if caller is None and not counted:
            self.limits.admit_unauthenticated(address)
        return caller

    async def _look_up_new(self, key: bytes, load: Load, address: str) -> Caller | None:
        """Look up a credential that has not been valid before: a few at a time, and none of an address at its limit.

        An invalid one is counted before the next is looked up, or the next would still pass the limit.
        """
        self.limits.admit_unauthenticated(address, count=False)
        async with self._new_lookups:
            self.limits.admit_unauthenticated(address, count=False)
            caller = await self._look_up(key, load, self._clock.monotonic())
            if caller is None:
                self.limits.admit_unauthenticated(address)
            return caller

    async def _look_up(self, key: bytes, load: Load, now: float) -> Caller | None:
        forgotten = self._forgotten
        async with self._database.connection() as connection:
            caller = await load(connection)
        self._known.pop(key, None)
        if caller is None:
            return None
        if len(self._known) > MOST_CACHED_TOKENS:
            self._known.clear()
        # One that may have been revoked while it was looked up is looked up again at its next use.
        self._known[key] = (caller, now - _too_long(caller) if forgotten == self._forgotten else float("-inf"))
        return caller

    def _caller(self, token: Token) -> Caller:
        quota = self._schedule_quota if token.schedule_quota is None else token.schedule_quota
        name = Principal(
            token.name if token.user is None else f"{token.user}/{token.name}",
            token.actor_id,
            schedule_quota=quota,
            quota_id=token.principal_id,
            grants=_restriction(token),
            queue_is_limited=token.queue_is_limited,
            role=token.role,
            user=token.user,
            groups=token.groups,
            delegated_by=token.delegated_by,
            issuers=token.issuers,
            issued_by=token.issued_by,
        )
        return Caller(
            token.tenant,
            name,
            token.scopes,
            token.token_id,
            tenant_name=token.tenant_name,
            grants=token.grants,
            role=token.role,
            principal_id=token.principal_id,
            left_s=token.left_s,
            suspended=token.suspended,
        )

    # Signed secrets -------------------------------------------------------------------------------------

    def _new_secret(self, purpose: str) -> str:
        secret = secrets.token_urlsafe(32)
        return f"{secret}.{self._signature(purpose, secret)}"

    def _is_signed(self, purpose: str, text: str) -> bool:
        secret, _, signature = text.rpartition(".")
        return hmac.compare_digest(self._signature(purpose, secret).encode(), signature.encode())

    def _signature(self, purpose: str, secret: str) -> str:
        mac = hmac.new(self._key, f"{purpose}:{secret}".encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(mac).decode().rstrip("=")


def _restriction(token: Token) -> WorkerGrants | None:
    """The queues and labels whose jobs a token may change and run; None: all jobs, or none at all."""
    if token.grants is None or token.grants.includes_every_job or "admin" in token.scopes:
        return None
    return token.grants if {"write", "operate"} & token.scopes else None


def _too_long(caller: Caller) -> float:
    """By how many seconds TOKEN_CACHE_S exceeds the rest of a token's life: it counts as looked up so much earlier."""
    return 0.0 if caller.left_s is None else max(0.0, TOKEN_CACHE_S - caller.left_s)


_LINK_INVALID = "this login link was used or has expired; get a new one with `mainspring ui`"
