"""Configuration of issuers, and the mapping of claims to tenant and role."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.domain.errors import Invalid
from mainspring.domain.issuer import Issuer, NotMapped, identity_of, read_issuers

TABLE: dict[str, Any] = {
    "url": "https://id.example.com",
    "audience": "mainspring",
    "tenant": "default",
    "roles-claim": "groups",
    "roles": {"ops": "operator", "staff": "viewer"},
}


def issuer(**more: Any) -> Issuer:
    table = {name.replace("_", "-"): value for name, value in more.items()}
    given = {name: value for name, value in {**TABLE, **table}.items() if value is not None}
    return read_issuers({"corp": given}, "file")[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"url": None}, "url is required"),
        ({"audience": None}, "audience is required"),
        ({"url": "http://id.example.com"}, "must begin with https://"),
        ({"url": "ftp://id.example.com"}, "must begin with https://"),
        ({"url": "https://id.example.com?x=1"}, "is not the address of an issuer"),
        ({"url": "https://user@id.example.com"}, "is not the address of an issuer"),
        ({"url": "https://[bad"}, "is not the address of an issuer"),
        ({"url": 7}, "must be a string"),
        ({"algorithm": "HS256"}, "'HS256' is not accepted"),
        ({"algorithm": "none"}, "'none' is not accepted"),
        ({"clock-skew": "1h"}, "clock-skew: from 0 to 300 seconds"),
        ({"clock-skew": "soon"}, "clock-skew"),
        ({"longest-lifetime": "30d"}, "longest-lifetime"),
        ({"not-before-claim": "exp"}, "use nbf, or iat"),
        ({"tenant": None}, "set tenant, or tenant-claim"),
        ({"tenant-claim": "org"}, "set tenant, or tenant-claim, and not both"),
        ({"tenants": {"a": "b"}}, "needs tenant-claim"),
        ({"roles": None}, "roles-claim and roles belong together"),
        ({"roles-claim": None, "roles": None}, "set roles-claim and roles, or role"),
        ({"roles": {"ops": 1}}, "roles.ops: must be a string"),
        ({"roles": ["ops"]}, "must be a table"),
        ({"client-id": "web", "scopes": ["profile"]}, "needs the scope openid"),
        ({"audiance": "x"}, "unknown setting audiance; did you mean 'audience'?"),
    ],
)
def test_a_wrong_setting_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid) as refused:
        issuer(**change)
    assert refused.value.message.startswith("file: [issuers.corp]") and message in refused.value.message


def test_issuers_have_names_and_addresses_of_their_own() -> None:
    for tables in ({"Corp ID": TABLE}, {"a": TABLE, "b": TABLE}, {"a": 1}, {f"i{n}": TABLE for n in range(30)}):
        with pytest.raises(Invalid):
            read_issuers(tables, "file")
    assert issuer(url="http://127.0.0.1:9000").url == "http://127.0.0.1:9000"


def test_the_first_entry_that_matches_counts() -> None:
    for groups in (["staff", "ops"], ["ops"], ("ops"), ["x", 7, None, "ops"]):
        assert identity_of(issuer(), {"sub": "a", "groups": groups}, left_s=1).role == "operator"


@pytest.mark.parametrize("groups", [None, [], "other", ["Ops"], {"ops": 1}, 7, [["ops"]], ["x"] * 500 + ["ops"]])
def test_nothing_is_granted_without_a_match(groups: Any) -> None:
    with pytest.raises(NotMapped):
        identity_of(issuer(), {"sub": "a", "groups": groups}, left_s=1)
    assert identity_of(issuer(role="viewer"), {"sub": "a", "groups": groups}, left_s=1).role == "viewer"


def test_claims_inside_others_and_claims_with_dots() -> None:
    nested = issuer(roles_claim="realm_access.roles")
    assert identity_of(nested, {"sub": "a", "realm_access": {"roles": ["ops"]}}, left_s=1).role == "operator"
    dotted = issuer(roles_claim="https://example.com/roles")
    assert identity_of(dotted, {"sub": "a", "https://example.com/roles": ["ops"]}, left_s=1).role == "operator"


def test_tenants_by_claim() -> None:
    mapped = issuer(tenant=None, tenant_claim="org", tenants={"O1": "one"})
    claims = {"sub": "a", "groups": "ops"}
    assert identity_of(mapped, {**claims, "org": "O1"}, left_s=1).tenant == "one"
    for org in ("one", "O2", None, ["O2"]):
        with pytest.raises(NotMapped):
            identity_of(mapped, {**claims, "org": org}, left_s=1)
    assert identity_of(issuer(tenant=None, tenant_claim="org"), {**claims, "org": "two"}, left_s=1).tenant == "two"


@pytest.mark.parametrize(
    ("given", "short", "shown"),
    [
        ({"preferred_username": "Alice.Smith@example.com"}, "alice-smith", "Alice.Smith@example.com"),
        ({"name": "Ålice"}, "s-1", "Ålice"),
        ({"preferred_username": "李"}, "user", "李"),
        ({"preferred_username": "x" * 500}, "x" * 40, "x" * 100),
        ({"name": "a\x1b[31m\n[b]"}, "s-1", "a[31m[b]"),
        ({"name": 7, "preferred_username": ["x"]}, "s-1", "s 1"),
    ],
)
def test_names_are_clean(given: dict[str, Any], short: str, shown: str) -> None:
    found = identity_of(issuer(), {"sub": "s 1", "groups": "ops", **given}, left_s=1)
    assert (found.short_name, found.display_name) == (short, shown)
