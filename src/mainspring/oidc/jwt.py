"""Reading and checking JWTs (RFC 7519, RFC 8725): what is refused, and in which order.

Everything that costs nothing is checked before the signature. A refusal has a reason for the log; callers answer
every refusal alike, so that a forger learns nothing.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mainspring.domain.issuer import MAX_SUBJECT, Issuer

MAX_TOKEN_CHARS = 8192
MAX_DEPTH = 8
MAX_KID_CHARS = 256
MAX_AUDIENCES = 50
ACCESS_TYPES = frozenset(("jwt", "at+jwt", "application/at+jwt"))
"""Values of `typ` in lower case that a bearer token may have. Without one it counts as a JWT; a logout token or a
proof of possession does not."""
ID_TYPES = frozenset(("jwt",))
_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_LAST_INSTANT = 253_402_300_799


class Refused(Exception):
    """The token is not accepted. The message is for the log, never for the caller."""


@dataclass(frozen=True, slots=True)
class Unverified:
    """A token that has the form of a JWT. Its claims count only after its signature was verified."""

    text: str
    algorithm: str
    key_id: str | None
    kind: str
    claims: Mapping[str, Any]

    @property
    def issuer(self) -> str:
        issuer = self.claims.get("iss")
        if not isinstance(issuer, str):
            raise Refused("iss is missing")
        return issuer


def looks_like_jwt(credential: str) -> bool:
    return credential.count(".") == 2


def read(token: str) -> Unverified:
    """Parse a token in the compact form. Raises `Refused`."""
    if len(token) > MAX_TOKEN_CHARS:
        raise Refused("longer than the limit")
    if not _COMPACT.fullmatch(token):
        raise Refused("not three parts of base64url")
    head, body, _ = token.split(".")
    header, claims = _object(head, "header"), _object(body, "claims")
    if "crit" in header:
        raise Refused("crit names extensions that are not supported")
    if "enc" in header or "zip" in header or header.get("b64", True) is not True:
        raise Refused("encrypted, compressed or detached content")
    algorithm, key_id, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
    if not isinstance(algorithm, str) or not isinstance(kind, str):
        raise Refused("alg or typ is not a string")
    if key_id is not None and not (isinstance(key_id, str) and 0 < len(key_id) <= MAX_KID_CHARS):
        raise Refused("kid is not a short string")
    return Unverified(token, algorithm, key_id, kind.lower(), claims)


def check_claims(
    claims: Mapping[str, Any], issuer: Issuer, *, audience: str, now_s: float, starts: tuple[str, ...]
) -> float:
    """Check the claims of a token whose signature is valid; return the seconds until `exp`. Raises `Refused`.

    `starts`: claims that say from when it is valid, of which at least one is required.
    """
    if claims.get("iss") != issuer.url:
        raise Refused("iss is another issuer")
    if audience not in _audiences(claims.get("aud")):
        raise Refused("aud is another audience")
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT:
        raise Refused("sub is missing or too long")
    if not subject.isascii() or not subject.isprintable():
        raise Refused("sub is not printable ASCII")
    skew_s = issuer.clock_skew_s
    expires = _instant(claims, "exp")
    begin = max((_instant(claims, name) for name in starts if name in claims), default=None)
    if begin is None:
        raise Refused(f"{starts[0]} is missing")
    if "iat" in claims and _instant(claims, "iat") > now_s + skew_s:
        raise Refused("issued in the future")
    if begin > now_s + skew_s:
        raise Refused("not valid yet")
    if expires <= now_s - skew_s:
        raise Refused("expired")
    if expires - begin > issuer.longest_lifetime_s or expires - now_s > issuer.longest_lifetime_s + skew_s:
        raise Refused("valid for longer than the operator accepts")
    return expires - now_s


def _audiences(given: Any) -> list[str]:
    if isinstance(given, str):
        return [given]
    if isinstance(given, list) and len(given) <= MAX_AUDIENCES and all(isinstance(item, str) for item in given):
        return given
    raise Refused("aud is missing or not a string")


def _instant(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused(f"{name} is missing or not a number")
    if not 0 <= value <= _LAST_INSTANT or not math.isfinite(value):
        raise Refused(f"{name} is out of range")
    return float(value)


def _object(part: str, what: str) -> dict[str, Any]:
    """Decode a part: UTF-8 JSON, no name twice, and no deeper than MAX_DEPTH."""
    try:
        raw = decoded(part)
        _check_depth(raw, what)
        value = json.loads(raw.decode(), object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_int)
    except (ValueError, RecursionError):
        raise Refused(f"{what}: not JSON") from None
    if not isinstance(value, dict):
        raise Refused(f"{what}: not an object")
    return value


def decoded(part: str) -> bytes:
    """Decode base64url without padding, of which each value has one spelling only."""
    try:
        raw = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise Refused("not base64url") from None
    if base64.urlsafe_b64encode(raw).rstrip(b"=") != part.encode():
        raise Refused("base64url with stray bits")
    return raw


def _check_depth(raw: bytes, what: str) -> None:
    """Bound the nesting before parsing. Brackets in strings count as well, which only refuses more."""
    depth = 0
    for char in raw:
        if char in b"{[":
            depth += 1
            if depth > MAX_DEPTH:
                raise Refused(f"{what}: nested too deep")
        elif char in b"}]":
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Refused("a name occurs twice")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(text)


def _int(text: str) -> int:
    if len(text) > 20:
        raise ValueError("number too long")
    return int(text)
