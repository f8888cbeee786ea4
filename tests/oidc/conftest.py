"""A real issuer process, and a server that accepts its JWTs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from mainspring.api.federated import FederatedAuthenticator
from mainspring.domain.issuer import Issuer, read_issuers
from tests.conftest import Cluster, started
from tests.support.oidc_issuer import AUDIENCE, DEVICE_CLIENT, WEB_CLIENT, WEB_SECRET, Provider, provider

ROLES = {
    "admins": "admin",
    "operators": "operator",
    "submitters": "submitter",
    "staff": "viewer",
    "cluster": "cluster-admin",
}
PUBLIC_URL = "http://jobs.test"


def issuer_of(issuer: Provider, name: str = "corp", **more: Any) -> Issuer:
    table = {"url": issuer.url, "audience": AUDIENCE, "tenant": "default", "roles-claim": "groups", "roles": ROLES}
    given = {key: value for key, value in {**table, **more}.items() if value is not None}
    return read_issuers({name: given}, "test")[0]


def auth_of(cluster: Cluster) -> FederatedAuthenticator:
    auth = cluster.context.auth
    assert isinstance(auth, FederatedAuthenticator)
    return auth


@pytest.fixture(scope="module")
async def issuer(anyio_backend: object) -> AsyncIterator[Provider]:
    async with provider() as running:
        await running.control("set", claims={"groups": ["staff"]}, redirect_uri=f"{PUBLIC_URL}/login/callback")
        yield running


@pytest.fixture(scope="module")
async def federated(
    database_url: str, issuer: Provider, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """A server with one issuer. It may ask for keys at any time, and counts no requests."""
    secret = tmp_path_factory.mktemp("oidc") / "secret"
    secret.write_text(WEB_SECRET)
    sign_in = {"client-id": WEB_CLIENT, "client-secret-file": str(secret), "device-client-id": DEVICE_CLIENT}
    configured = issuer_of(issuer, **{"display-name": "Corp ID"}, **sign_in)
    async with started(database_url, issuers=(configured,), rate_limit=0, public_url=PUBLIC_URL) as cluster:
        auth_of(cluster).providers[0]._keys._min_refetch_s = 0.0
        yield cluster


@pytest.fixture(scope="module")
async def http(federated: Cluster) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=federated.url, trust_env=False, timeout=30) as http:
        yield http


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
