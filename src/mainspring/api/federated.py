"""Authentication with JWTs of configured issuers, and sign-in of browsers at an issuer.

Tokens of this server (`ms_…`) take the path of `Authenticator`, with nothing added to it. A JWT is verified, then
looked up like a token: the subject becomes a user of the tenant that its claims stand for, and a token without a secret
stands for it in each of its roles.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID, uuid4, uuid5

import msgspec
import structlog

from mainspring.api.auth import PREFIX, TOKEN_CACHE_S, Authenticator, Caller, digest
from mainspring.api.rate_limit import RequestLimits
from mainspring.clock import Clock, SystemClock
from mainspring.domain.errors import Forbidden, Unauthenticated
from mainspring.domain.issuer import Identity, NotMapped
from mainspring.oidc import jwt
from mainspring.oidc.jwt import Refused
from mainspring.oidc.provider import Provider
from mainspring.store import identities, tenants, tokens
from mainspring.store.db import Connection, Database, Taken
from mainspring.store.identities import NewIdentity
from mainspring.store.tokens import Token

log = structlog.get_logger()

SIGN_IN_S = 600
"""How long a browser may take to sign in at the issuer."""
CALLBACK = "/login/callback"
NAMESPACE = UUID("6d61696e-7370-5269-8e67-6f6964630001")
"""Ids of users that an issuer knows are derived from tenant, issuer and subject in this namespace."""
INVALID = "invalid token: unknown, expired or revoked"
NOT_COMPLETED = "the sign-in could not be completed; try again"
NO_ACCESS = "this account is known to the issuer, but its claims match no tenant or role; ask an administrator"


@dataclass(frozen=True, slots=True)
class SignIn:
    """A sign-in that a browser has begun: what its cookie contains."""

    state: str
    issuer: str
    then: str
    began_s: int


class FederatedAuthenticator(Authenticator):
    """Finds the caller of a request that has a token of this server, a JWT of an issuer, or a browser session."""

    def __init__(
        self,
        database: Database,
        providers: Sequence[Provider],
        *,
        public_url: str = "",
        clock: Clock | None = None,
        limits: RequestLimits | None = None,
        schedule_quota: int = 0,
    ) -> None:
        super().__init__(database, clock=clock or SystemClock(), limits=limits, schedule_quota=schedule_quota)
        self.providers = tuple(providers)
        self._by_url = {provider.issuer.url: provider for provider in providers}
        self._by_name = {provider.issuer.name: provider for provider in providers}
        self._redirect_uri = public_url + CALLBACK

    async def close(self) -> None:
        for provider in self.providers:
            await provider.close()

    def by_token(self, credential: str, address: str = "") -> Coroutine[Any, Any, Caller]:
        # Not a coroutine itself: tokens of this server cost nothing more than without issuers.
        own = credential.startswith(PREFIX) or not jwt.looks_like_jwt(credential)
        return super().by_token(credential, address) if own else self._by_jwt(credential, address)

    async def _by_jwt(self, credential: str, address: str) -> Caller:
        key = digest(credential)
        found = self._known.get(key)
        if found is not None and self._clock.monotonic() - found[1] < TOKEN_CACHE_S:
            return found[0]
        if found is None:
            self.limits.admit_unauthenticated(address, count=False)
        try:
            identity = await self._identify(credential)
            caller = await self._find(key, partial(self._load, identity), address)
        except Refused as refusal:
            self._known.pop(key, None)
            self.limits.admit_unauthenticated(address)
            log.info("jwt.refused", reason=str(refusal))
            raise Unauthenticated(INVALID) from None
        except NotMapped as missing:
            self.limits.admit_unauthenticated(address)
            log.info("jwt.not_mapped", missing=str(missing))
            raise Forbidden(NO_ACCESS, code="not_mapped") from None
        if caller is None:
            raise Unauthenticated(INVALID)
        return caller

    async def _identify(self, credential: str) -> Identity:
        token = jwt.read(credential)
        provider = self._by_url.get(token.issuer)
        if provider is None:
            raise Refused("iss is not configured")
        return await provider.identify(token)

    async def _load(self, identity: Identity, connection: Connection) -> Caller | None:
        token = await self._token_of(connection, identity)
        if token is None:
            return None
        skew_s = self._by_name[identity.issuer].issuer.clock_skew_s
        return replace(
            self._caller(replace(token, groups=identity.groups)),
            left_s=identity.left_s,
            expires_at=self._clock.monotonic() + identity.left_s + skew_s,
            response_key=hmac.new(self._key, b"responses:" + token.token_id.bytes, hashlib.sha256).digest(),
        )

    async def _token_of(self, connection: Connection, identity: Identity) -> Token | None:
        """The token that stands for a subject in its role; added at its first request. None: it is blocked."""
        tenant = await tenants.tenant_by_name(connection, name=identity.tenant)
        if tenant is None:
            raise NotMapped("tenant")
        new = self._new_identity(identity, tenant.tenant_id)
        token = await tokens.token_by_digest(connection, digest=new.digest)
        if token is not None and not token.unused and token.groups == new.groups:
            return token
        try:
            await identities.ensure_identity(connection, new, tenant=tenant.tenant_id)
        except Taken:
            log.warning("identity.name_taken", name=new.name, tenant=identity.tenant)
            return None
        token = await tokens.token_by_digest(connection, digest=new.digest)
        if token is not None and token.unused:
            await tokens.use_token(connection, token_id=token.token_id)
        return token

    def _new_identity(self, identity: Identity, tenant_id: int) -> NewIdentity:
        whole = "\n".join((str(tenant_id), identity.issuer_url, identity.subject))
        principal_id = uuid5(NAMESPACE, whole)
        return NewIdentity(
            principal_id=principal_id,
            name=f"{identity.short_name}-{principal_id.hex[:8]}",
            display_name=identity.display_name,
            role=identity.role,
            issuer=identity.issuer_url,
            subject=identity.subject,
            token_id=uuid4(),
            token_name=identity.issuer,
            # Keyed, so that no bearer token has this digest.
            digest=hmac.new(self._key, f"identity:{whole}\n{identity.role}".encode(), hashlib.sha256).digest(),
            created_by=f"issuer {identity.issuer}",
            groups=identity.groups,
        )

    # Browsers -------------------------------------------------------------------------------------------

    async def new_login_link(self, caller: Caller, *, database: Database | None = None) -> tuple[str, datetime]:
        if caller.expires_at is not None:
            raise Forbidden("a login link would outlast this JWT; sign in at the issuer instead", code="token_needed")
        return await super().new_login_link(caller, database=database)

    async def cookie_for_token(self, credential: str, *, address: str = "", user_agent: str = "") -> str:
        if jwt.looks_like_jwt(credential) and not credential.startswith(PREFIX):
            raise Unauthenticated("a JWT does not sign a browser in; sign in at the issuer instead")
        return await super().cookie_for_token(credential, address=address, user_agent=user_agent)

    async def begin_sign_in(self, issuer: str, then: str) -> tuple[str, str]:
        """Return the address at the issuer to send a browser to, and the cookie that ties the sign-in to it."""
        provider = self._by_name.get(issuer)
        if provider is None or provider.issuer.client_id is None:
            raise Unauthenticated("unknown issuer; reload the page")
        state = secrets.token_urlsafe(32)
        address = await provider.authorization_url(
            redirect_uri=self._redirect_uri, state=state, nonce=self._nonce(state), verifier=self._verifier(state)
        )
        sign_in = SignIn(state, issuer, then, int(self._clock.now_ms() / 1000))
        content = base64.urlsafe_b64encode(msgspec.json.encode(sign_in)).rstrip(b"=").decode()
        return address, f"{content}.{self._signature('sign-in', content)}"

    async def finish_sign_in(
        self, cookie: str, state: str, code: str, *, issuer: str = "", address: str = "", user_agent: str = ""
    ) -> tuple[str, str]:
        """Complete a sign-in once: return the cookie of a new session, and the path to continue at.

        `issuer` is the parameter `iss` of the response (RFC 9207), if the issuer sends it.
        """
        began = self._begun(cookie)
        if began is None or not code or not hmac.compare_digest(began.state.encode(), state.encode()):
            raise Unauthenticated(NOT_COMPLETED)
        provider = self._by_name.get(began.issuer)
        if provider is None or issuer not in ("", provider.issuer.url):
            raise Unauthenticated(NOT_COMPLETED)
        try:
            identity = await provider.exchange(
                code, redirect_uri=self._redirect_uri, nonce=self._nonce(state), verifier=self._verifier(state)
            )
            async with self._database.transaction() as connection:
                if not await identities.use_sign_in(connection, digest=digest(state), seconds=SIGN_IN_S):
                    raise Refused("the sign-in was completed before")
                token = await self._token_of(connection, identity)
                if token is None:
                    raise Refused("the user is blocked")
                return await self._new_session(connection, self._caller(token), address, user_agent), began.then
        except Refused as refusal:
            log.info("sign_in.refused", issuer=began.issuer, reason=str(refusal))
            raise Unauthenticated(NOT_COMPLETED) from None
        except NotMapped as missing:
            log.info("sign_in.not_mapped", issuer=began.issuer, missing=str(missing))
            raise Forbidden(NO_ACCESS, code="not_mapped") from None

    def _begun(self, cookie: str) -> SignIn | None:
        if not self._is_signed("sign-in", cookie):
            return None
        content = cookie.rpartition(".")[0]
        raw = base64.urlsafe_b64decode(content + "=" * (-len(content) % 4))
        began = msgspec.json.decode(raw, type=SignIn)
        return began if 0 <= self._clock.now_ms() / 1000 - began.began_s <= SIGN_IN_S else None

    def _nonce(self, state: str) -> str:
        return self._signature("oidc-nonce", state)

    def _verifier(self, state: str) -> str:
        """The secret of PKCE: derived, so that it is stored nowhere."""
        return self._signature("oidc-verifier", state)
