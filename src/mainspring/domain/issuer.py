"""Identity providers whose JWTs the server accepts, and the tenant and role that their claims stand for. Pure.

    [issuers.corp]
    url = "https://id.example.com"
    audience = "mainspring"
    tenant = "default"
    roles-claim = "groups"
    roles = { ops = "operator", staff = "viewer" }

Nothing is granted unless a claim matches: a token without a mapped tenant and role is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import Invalid
from mainspring.domain.principal import is_group_name
from mainspring.domain.suggestion import closest

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Asymmetric signatures only: with a shared secret, every verifier could also sign."""
LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))
MAX_ISSUERS = 20
MAX_MAPPED = 1000
MAX_TEXT = 300
MAX_SKEW_S = 300.0
MAX_LIFETIME_S = 7 * 86_400.0
MAX_VALUES = 500
"""Values of a claim that are compared with the mapping."""
MAX_GROUPS = 200
"""Groups of a subject that are kept; gates do not see more."""
MAX_SUBJECT = 255
_NAME = re.compile(r"\A[a-z0-9][a-z0-9-]{0,29}\Z")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Issuer:
    """An identity provider as the operator configured it."""

    name: str
    url: str
    audience: str
    algorithm: str = "RS256"
    display_name: str = ""
    clock_skew_s: float = 30.0
    longest_lifetime_s: float = 86_400.0
    not_before_claim: str = "nbf"
    tenant: str | None = None
    tenant_claim: str | None = None
    tenants: Mapping[str, str] = field(default_factory=dict)
    role: str | None = None
    roles_claim: str | None = None
    roles: Mapping[str, str] = field(default_factory=dict)
    groups_claim: str | None = None
    name_claim: str = "preferred_username"
    client_id: str | None = None
    client_secret_file: str | None = None
    device_client_id: str | None = None
    scopes: tuple[str, ...] = ("openid", "profile")

    @property
    def shown_name(self) -> str:
        return self.display_name or self.name


@dataclass(frozen=True, slots=True)
class Identity:
    """The subject of a verified token, with the tenant and the role that its claims stand for."""

    issuer: str
    """The name of the issuer in the configuration."""
    issuer_url: str
    subject: str
    tenant: str
    role: str
    display_name: str
    short_name: str
    left_s: float
    """Until the token expires; negative within the clock skew."""
    groups: tuple[str, ...] = ()


class NotMapped(Exception):
    """No tenant or no role matches the claims of a valid token."""


def read_issuers(tables: Mapping[str, Any], where: str) -> tuple[Issuer, ...]:
    """Return the issuers of the tables `[issuers.NAME]`; `where` names the file in errors."""
    if len(tables) > MAX_ISSUERS:
        raise Invalid(f"{where}: more than {MAX_ISSUERS} issuers")
    found = []
    for name, table in tables.items():
        place = f"{where}: [issuers.{name}]"
        if not _NAME.match(name):
            raise Invalid(f"{place}: the name has 1 to 30 lower-case letters, digits and '-'")
        if not isinstance(table, dict):
            raise Invalid(f"{place} must be a table")
        found.append(_issuer(name, table, place))
    urls = [issuer.url for issuer in found]
    if len(set(urls)) < len(urls):
        raise Invalid(f"{where}: two issuers have the same url")
    return tuple(found)


def identity_of(issuer: Issuer, claims: Mapping[str, Any], *, left_s: float) -> Identity:
    """Map the claims of a verified token. Raises `NotMapped` if no tenant or no role matches."""
    tenant = issuer.tenant or _mapped_tenant(issuer, claims)
    role = _mapped_role(issuer, claims) or issuer.role
    if tenant is None or role is None:
        raise NotMapped("tenant" if tenant is None else "role")
    given = claim(claims, issuer.name_claim)
    name = given if isinstance(given, str) and given else str(claims["sub"])
    full = claims.get("name")
    return Identity(
        issuer=issuer.name,
        issuer_url=issuer.url,
        subject=str(claims["sub"]),
        tenant=tenant,
        role=role,
        display_name=_printable(full if isinstance(full, str) and full else name),
        short_name=_NOT_IN_NAMES.sub("-", name[:MAX_SUBJECT].partition("@")[0].lower()).strip("-")[:40] or "user",
        left_s=left_s,
        groups=_groups(issuer, claims),
    )


def claim(claims: Mapping[str, Any], name: str) -> Any:
    """The value of a claim: by its whole name, or by a path such as `realm_access.roles`."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _mapped_tenant(issuer: Issuer, claims: Mapping[str, Any]) -> str | None:
    for value in _values(claim(claims, issuer.tenant_claim or "")):
        if not issuer.tenants:
            return value
        if value in issuer.tenants:
            return issuer.tenants[value]
    return None


def _mapped_role(issuer: Issuer, claims: Mapping[str, Any]) -> str | None:
    """The first entry of the mapping whose value the claim has."""
    values = set(_values(claim(claims, issuer.roles_claim or "")))
    return next((role for value, role in issuer.roles.items() if value in values), None)


def _groups(issuer: Issuer, claims: Mapping[str, Any]) -> tuple[str, ...]:
    if issuer.groups_claim is None:
        return ()
    found = sorted({value for value in _values(claim(claims, issuer.groups_claim)) if is_group_name(value)})
    return tuple(found[:MAX_GROUPS])


def _values(given: Any) -> Iterator[str]:
    if isinstance(given, str):
        yield given
    elif isinstance(given, list):
        yield from (value for value in given[:MAX_VALUES] if isinstance(value, str))


def _printable(text: str) -> str:
    return "".join(char for char in text[:100] if char.isprintable()).strip() or "user"


# Configuration ----------------------------------------------------------------------------------------------

_TEXTS = {
    "url": "url",
    "audience": "audience",
    "algorithm": "algorithm",
    "display-name": "display_name",
    "not-before-claim": "not_before_claim",
    "tenant": "tenant",
    "tenant-claim": "tenant_claim",
    "role": "role",
    "roles-claim": "roles_claim",
    "groups-claim": "groups_claim",
    "name-claim": "name_claim",
    "client-id": "client_id",
    "client-secret-file": "client_secret_file",
    "device-client-id": "device_client_id",
}
_DURATIONS = {"clock-skew": ("clock_skew_s", MAX_SKEW_S), "longest-lifetime": ("longest_lifetime_s", MAX_LIFETIME_S)}
_TABLES = {"tenants": "tenants", "roles": "roles"}
_KEYS = (*_TEXTS, *_DURATIONS, *_TABLES, "scopes")


def _issuer(name: str, table: Mapping[str, Any], place: str) -> Issuer:
    fields: dict[str, Any] = {"name": name}
    for key, value in table.items():
        if key in _TEXTS:
            fields[_TEXTS[key]] = _text(value, f"{place} {key}")
        elif key in _DURATIONS:
            fields[_DURATIONS[key][0]] = _seconds(value, f"{place} {key}", _DURATIONS[key][1])
        elif key in _TABLES:
            fields[_TABLES[key]] = _mapping(value, f"{place} {key}")
        elif key == "scopes":
            fields["scopes"] = _list(value, f"{place} {key}")
        else:
            close = closest(key, _KEYS)
            raise Invalid(f"{place}: unknown setting {key}" + (f"; did you mean {close!r}?" if close else ""))
    for key in ("url", "audience"):
        if key not in fields:
            raise Invalid(f"{place}: {key} is required")
    issuer = Issuer(**fields)
    _check(issuer, place)
    return issuer


def _check(issuer: Issuer, place: str) -> None:
    _check_url(issuer.url, f"{place} url")
    if issuer.algorithm not in ALGORITHMS:
        raise Invalid(f"{place} algorithm: {issuer.algorithm!r} is not accepted; use one of {', '.join(ALGORITHMS)}")
    if issuer.not_before_claim not in ("nbf", "iat"):
        raise Invalid(f"{place} not-before-claim: use nbf, or iat for an issuer that does not send nbf")
    if (issuer.tenant is None) == (issuer.tenant_claim is None):
        raise Invalid(f"{place}: set tenant, or tenant-claim, and not both")
    if issuer.tenants and issuer.tenant_claim is None:
        raise Invalid(f"{place} tenants: needs tenant-claim")
    if (issuer.roles_claim is None) != (not issuer.roles):
        raise Invalid(f"{place}: roles-claim and roles belong together")
    if issuer.roles_claim is None and issuer.role is None:
        raise Invalid(f"{place}: set roles-claim and roles, or role for every subject")
    if issuer.client_id is not None and "openid" not in issuer.scopes:
        raise Invalid(f"{place} scopes: sign-in needs the scope openid")


def _check_url(url: str, place: str) -> None:
    try:
        parts = urlsplit(url)
        valid = bool(parts.hostname) and parts.port != 0 and not (parts.query or parts.fragment or parts.username)
    except ValueError:
        valid = False
    if not valid or not url.isascii() or not url.isprintable() or " " in url:
        raise Invalid(f"{place}: {url!r} is not the address of an issuer, such as https://id.example.com")
    if not is_secure(url):
        raise Invalid(f"{place}: {url!r} must begin with https://; http:// is for issuers on this machine only")


def is_secure(url: str) -> bool:
    """Whether a URL is https, or http on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT or not value.isprintable():
        raise Invalid(f"{place}: must be a string of 1 to {MAX_TEXT} characters")
    return value


def _list(value: Any, place: str) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > 50:
        raise Invalid(f"{place}: must be a list of at most 50 strings")
    return tuple(_text(item, place) for item in value)


def _mapping(value: Any, place: str) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > MAX_MAPPED:
        raise Invalid(f"{place}: must be a table of at most {MAX_MAPPED} entries")
    return {_text(key, place): _text(item, f"{place}.{key}") for key, item in value.items()}


def _seconds(value: Any, place: str, most: float) -> float:
    try:
        seconds = parse_duration(value) if isinstance(value, str | int | float) else -1.0
    except ValueError as error:
        raise Invalid(f"{place}: {error}") from None
    if not 0 <= seconds <= most:
        raise Invalid(f"{place}: from 0 to {most:g} seconds")
    return seconds
