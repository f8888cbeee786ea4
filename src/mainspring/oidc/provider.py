"""One issuer: its endpoints, its keys, the verification of its tokens, and sign-in with an authorization code."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import structlog

from mainspring.clock import Clock, SystemClock
from mainspring.domain.address import Network
from mainspring.domain.errors import Invalid
from mainspring.domain.issuer import Identity, Issuer, identity_of
from mainspring.oidc import jwt
from mainspring.oidc.fetch import IssuerHttp, IssuerUnavailable
from mainspring.oidc.jwt import Refused, Unverified
from mainspring.oidc.keys import MIN_REFETCH_S, IssuerKeys

log = structlog.get_logger()

DISCOVERY = "/.well-known/openid-configuration"
METADATA_S = 3600.0
MAX_CODE_CHARS = 2000


class Provider:
    """An issuer in use. `allowed`: private networks of hosts that its documents may name."""

    def __init__(
        self,
        issuer: Issuer,
        *,
        clock: Clock,
        allowed: Sequence[Network] = (),
        min_refetch_s: float = MIN_REFETCH_S,
    ) -> None:
        self.issuer = issuer
        self._clock = clock
        self._http = IssuerHttp(issuer.url, allowed)
        self._keys = IssuerKeys(self._fetch_keys, issuer.algorithm, clock=clock, min_refetch_s=min_refetch_s)
        self._min_refetch_s = min_refetch_s
        self._metadata: dict[str, Any] | None = None
        self._metadata_at = float("-inf")
        self._tried_at = float("-inf")
        self._secret = _secret(issuer)

    async def close(self) -> None:
        await self._keys.close()
        self._http.close()

    async def identify(self, token: Unverified) -> Identity:
        """Return the subject of a bearer token. Raises `Refused`, `NotMapped` or `IssuerUnavailable`."""
        await self._check_signature(token, jwt.ACCESS_TYPES)
        issuer = self.issuer
        left_s = self._check_claims(token, issuer.audience, (issuer.not_before_claim,))
        return identity_of(issuer, token.claims, left_s=left_s)

    async def authorization_url(self, *, redirect_uri: str, state: str, nonce: str, verifier: str) -> str:
        """The address at the issuer where a browser signs in."""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        endpoint = await self._endpoint("authorization_endpoint")
        query = urlencode(
            {
                "response_type": "code",
                "client_id": self.issuer.client_id or "",
                "redirect_uri": redirect_uri,
                "scope": " ".join(self.issuer.scopes),
                "state": state,
                "nonce": nonce,
                "code_challenge": challenge,
                "code_challenge_method": "S256",
            }
        )
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{query}"

    async def exchange(self, code: str, *, redirect_uri: str, nonce: str, verifier: str) -> Identity:
        """Return the subject of the id token that an authorization code stands for. Raises as `identify`."""
        client_id = self.issuer.client_id or ""
        form = {
            "grant_type": "authorization_code",
            "code": code[:MAX_CODE_CHARS],
            "redirect_uri": redirect_uri,
            "client_id": client_id,
            "code_verifier": verifier,
        }
        headers = {}
        if self._secret is not None:
            pair = f"{quote(client_id, safe='')}:{quote(self._secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        status, answer = await self._http.post(await self._endpoint("token_endpoint"), form, headers=headers)
        id_token = answer.get("id_token")
        if status != 200 or not isinstance(id_token, str):
            raise Refused(f"the issuer answered the code with {status} {str(answer.get('error', ''))[:100]}")
        return await self._identify_id_token(jwt.read(id_token), client_id, nonce)

    async def _identify_id_token(self, token: Unverified, client_id: str, nonce: str) -> Identity:
        await self._check_signature(token, jwt.ID_TYPES)
        left_s = self._check_claims(token, client_id, ("nbf", "iat"))
        claims = token.claims
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise Refused("nonce is of another sign-in")
        party = claims.get("azp", client_id if isinstance(claims["aud"], str) or len(claims["aud"]) == 1 else None)
        if party != client_id:
            raise Refused("azp is another client")
        return identity_of(self.issuer, claims, left_s=left_s)

    def _check_claims(self, token: Unverified, audience: str, starts: tuple[str, ...]) -> float:
        now_s = self._clock.now_ms() / 1000
        return jwt.check_claims(token.claims, self.issuer, audience=audience, now_s=now_s, starts=starts)

    async def _check_signature(self, token: Unverified, kinds: frozenset[str]) -> None:
        from joserfc.jws import JWSRegistry

        if token.algorithm != self.issuer.algorithm:
            raise Refused("alg is not that of the issuer")
        if token.kind not in kinds:
            raise Refused("typ is that of another kind of token")
        key = await self._keys.find(token.key_id)
        if key is None:
            raise Refused("kid names no key of the issuer" if token.key_id else "kid is missing")
        content, _, signature = token.text.rpartition(".")
        if not JWSRegistry.algorithms[self.issuer.algorithm].verify(content.encode(), jwt.decoded(signature), key):
            raise Refused("the signature is wrong")

    async def _fetch_keys(self) -> dict[str, Any]:
        return await self._http.get(await self._endpoint("jwks_uri"))

    async def _endpoint(self, name: str) -> str:
        metadata = await self._load_metadata()
        if name not in metadata:
            raise IssuerUnavailable(f"the issuer {self.issuer.name} has no {name}")
        return self._http.check_url(metadata[name])

    async def _load_metadata(self) -> dict[str, Any]:
        """The discovery document; an old one if the issuer cannot be reached."""
        now = self._clock.monotonic()
        if self._metadata is not None and now - self._metadata_at < METADATA_S:
            return self._metadata
        if now - self._tried_at < self._min_refetch_s:
            if self._metadata is None:
                raise IssuerUnavailable(f"the issuer {self.issuer.name} is not available; try again")
            return self._metadata
        self._tried_at = now
        try:
            metadata = await self._http.get(self.issuer.url.rstrip("/") + DISCOVERY)
            if metadata.get("issuer") != self.issuer.url:
                raise IssuerUnavailable(f"the document of {self.issuer.url} is that of another issuer")
            self._metadata, self._metadata_at = metadata, now
        except IssuerUnavailable as error:
            log.warning("issuer.unavailable", issuer=self.issuer.name, reason=error.reason)
            if self._metadata is None:
                raise
        return self._metadata


def open_providers(
    issuers: Sequence[Issuer], *, allowed: Sequence[Network] = (), public_url: str = "", clock: Clock | None = None
) -> list[Provider]:
    """The issuers of a configuration, ready for use. Sign-in of browsers needs to know the address of the web UI."""
    for issuer in issuers:
        if issuer.client_id is not None and not public_url:
            raise Invalid(f"[issuers.{issuer.name}] client-id: set --public-url, the address browsers return to")
    return [Provider(issuer, clock=clock or SystemClock(), allowed=allowed) for issuer in issuers]


def _secret(issuer: Issuer) -> str | None:
    if issuer.client_secret_file is None:
        return None
    try:
        secret = Path(issuer.client_secret_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"[issuers.{issuer.name}] client-secret-file: cannot be read: {error}") from None
    if not 0 < len(secret) <= 1000:
        raise Invalid(f"[issuers.{issuer.name}] client-secret-file: a secret has 1 to 1000 characters")
    return secret
