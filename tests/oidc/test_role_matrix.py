"""Every role against every route with JWTs of an issuer, and every route with JWTs that are not valid."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from mainspring import wire
from mainspring.api.app import endpoints
from mainspring.web.app import every_page
from tests.conftest import Cluster, started
from tests.oidc.conftest import ROLES, bearer, issuer_of
from tests.support.jwt_signing import new_key, part, signed
from tests.support.oidc_issuer import AUDIENCE, Provider
from tests.support.pages import NAVIGATION
from tests.support.role_matrix import MAY, filled, is_refused

pytestmark = pytest.mark.anyio
TENANT = "of-the-claim"
GROUP_OF = {role: group for group, role in ROLES.items()}


@pytest.fixture(scope="module")
async def server(database_url: str, issuer: Provider) -> AsyncIterator[Cluster]:
    """A server that takes the tenant from a claim: administrators of the first tenant have more rights."""
    by_claim: dict[str, Any] = {"tenant": None, "tenant-claim": "org"}
    configured = issuer_of(issuer, **by_claim)
    async with started(database_url, issuers=(configured,), rate_limit=0) as cluster:
        async with cluster.client() as admin:
            await admin.create_tenant(wire.NewTenant(name=TENANT))
        yield cluster


@pytest.mark.requirement(138)
@pytest.mark.parametrize("role", MAY)
async def test_a_role_of_a_jwt_opens_its_routes_and_no_others(server: Cluster, issuer: Provider, role: str) -> None:
    token = await issuer.mint(sub=role, org=TENANT, groups=[GROUP_OF[role]])
    surprises = []
    async with httpx2.AsyncClient(base_url=server.url, headers=bearer(token), trust_env=False, timeout=30) as http:
        for e in endpoints():
            if await is_refused(http, e.method, e.path) == (e.scope in MAY[role]):
                surprises.append(f"{e.method} {e.path}")
        http.headers.update(NAVIGATION)
        for page in every_page():
            if page.get is not None and await is_refused(http, "GET", page.path) == (page.read_scope in MAY[role]):
                surprises.append(f"GET {page.path}")
            if page.post is not None and await is_refused(http, "POST", page.path) == (page.write_scope in MAY[role]):
                surprises.append(f"POST {page.path}")
    assert surprises == []


@pytest.mark.requirement(138)
async def test_no_route_opens_without_a_valid_jwt(server: Cluster, issuer: Provider) -> None:
    now = int(time.time())
    claims = {"iss": issuer.url, "sub": "root", "aud": AUDIENCE, "nbf": now, "exp": now + 300, "org": TENANT}
    claims |= {"groups": ["cluster"]}
    wrong = {
        "unsigned": f"{part({'alg': 'none'})}.{part(claims)}.AAAA",
        "of a stranger": signed(new_key("RS256"), {"alg": "RS256", "kid": "key-1"}, claims),
        "expired": await issuer.mint(sub="root", org=TENANT, groups=["cluster"], exp=now - 60),
        "for another audience": await issuer.mint(sub="root", org=TENANT, groups=["cluster"], aud="another"),
    }
    async with httpx2.AsyncClient(base_url=server.url, trust_env=False, timeout=30) as http:
        for name, token in wrong.items():
            for e in endpoints():
                answer = await http.request(e.method, filled(e.path), headers=bearer(token))
                assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated"), (name, e.path)
            for page in every_page():
                assert (await http.get(filled(page.path), headers=bearer(token))).status_code in (401, 405), page.path
