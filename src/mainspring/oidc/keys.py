"""The public keys of an issuer: fetched with bounds, kept for a while, fetched again when an unknown key is named."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import structlog

from mainspring.clock import Clock
from mainspring.oidc.fetch import IssuerUnavailable

if TYPE_CHECKING:
    from joserfc.jwk import Key

log = structlog.get_logger()

FRESH_S = 300.0
"""Keys of this age are fetched again in the background; those twice as old before they are used."""
MAX_AGE_S = 3600.0
"""Keys of this age are not used, even if the issuer cannot be reached: a key it has removed must end."""
MIN_REFETCH_S = 10.0
"""The least time between two requests to the issuer, however many tokens name unknown keys."""
MAX_KEYS = 50
MIN_RSA_BITS, MAX_RSA_BITS = 2048, 4096
MAX_RSA_EXPONENT_CHARS = 6
"""Base64url characters of a public exponent: a large one makes each verification slow."""
_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "EdDSA": "Ed25519"}

Fetch = Callable[[], Awaitable[dict[str, Any]]]


class IssuerKeys:
    """The keys of one issuer that fit its algorithm, by their id."""

    def __init__(self, fetch: Fetch, algorithm: str, *, clock: Clock, min_refetch_s: float = MIN_REFETCH_S) -> None:
        self._fetch = fetch
        self._algorithm = algorithm
        self._clock = clock
        self._min_refetch_s = min_refetch_s
        self._keys: dict[str, Key] | None = None
        self._fetched_at = float("-inf")
        self._tried_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, key_id: str | None) -> Key | None:
        """Return the key of an id; without one, the only key. Raises `IssuerUnavailable` if there are no keys."""
        age = self._clock.monotonic() - self._fetched_at
        if age >= 2 * FRESH_S:
            await self._refresh()
        elif age >= FRESH_S:
            self._begin()
        key = self._known(key_id)
        if key is None and await self._refresh():
            key = self._known(key_id)
        return key

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)

    def _known(self, key_id: str | None) -> Key | None:
        if self._keys is None or self._clock.monotonic() - self._fetched_at >= MAX_AGE_S:
            raise IssuerUnavailable("the keys of the issuer are not available; try again")
        if key_id is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(key_id)

    async def _refresh(self) -> bool:
        """Wait for a request to the issuer, if one may be made; return whether there was one."""
        if (task := self._begin()) is None:
            return False
        await asyncio.shield(task)
        return True

    def _begin(self) -> asyncio.Task[None] | None:
        if self._fetching is not None:
            return self._fetching
        now = self._clock.monotonic()
        if now - self._tried_at < self._min_refetch_s:
            return None
        self._tried_at = now
        self._fetching = asyncio.create_task(self._load(now))
        self._fetching.add_done_callback(self._done)
        return self._fetching

    def _done(self, _: asyncio.Task[None]) -> None:
        self._fetching = None

    async def _load(self, now: float) -> None:
        try:
            document = await self._fetch()
            self._keys = usable_keys(document, self._algorithm)
            self._fetched_at = now
        except IssuerUnavailable as error:
            log.warning("issuer.keys_unavailable", reason=error.reason)


def usable_keys(document: dict[str, Any], algorithm: str) -> dict[str, Key]:
    """Return the public keys of a JWK set that can verify an algorithm, by id. Others are left out."""
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    listed = document.get("keys")
    if not isinstance(listed, list):
        raise IssuerUnavailable("the keys of the issuer are not a JWK set")
    found: dict[str, Key] = {}
    for entry in listed[:MAX_KEYS]:
        if not isinstance(entry, dict) or not _fits(entry, algorithm):
            continue
        public = {name: entry[name] for name in ("kty", "crv", "n", "e", "x", "y") if name in entry}
        try:
            key = import_key(public)
        except (JoseError, ValueError, TypeError, KeyError):
            continue
        if _is_strong(key):
            found[entry.get("kid") or f"\0{len(found)}"] = key  # one without an id is found only if it is the only key
    return found


def _fits(entry: dict[str, Any], algorithm: str) -> bool:
    return (
        entry.get("kty") == _TYPES[algorithm[:2]]
        and entry.get("use", "sig") == "sig"
        and entry.get("alg", algorithm) == algorithm
        and entry.get("crv") == _CURVES.get(algorithm)
        and isinstance(entry.get("kid", ""), str)
        and (entry["kty"] != "RSA" or _has_bounded_numbers(entry))
        and "verify" in entry.get("key_ops", ("verify",))
    )


def _has_bounded_numbers(entry: dict[str, Any]) -> bool:
    """Whether an RSA key has about the size of one that is accepted, before it is decoded."""
    chars = len(str(entry.get("n", ""))) * 6
    return MIN_RSA_BITS <= chars <= MAX_RSA_BITS + 16 and len(str(entry.get("e", ""))) <= MAX_RSA_EXPONENT_CHARS


def _is_strong(key: Key) -> bool:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    public = key.get_op_key("verify")
    return not isinstance(public, RSAPublicKey) or MIN_RSA_BITS <= public.key_size <= MAX_RSA_BITS
