"""Fixtures for the API over real HTTP, with tokens of every scope. A `conftest.py` imports what its tests use."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from mainspring.api.auth import issue_token
from mainspring.client import AsyncClient
from mainspring.domain.grants import EVERYTHING
from tests.conftest import Cluster
from tests.support.api_tokens import Issue


@pytest.fixture
async def http(cluster: Cluster) -> AsyncIterator[httpx2.AsyncClient]:
    """Plain HTTP with the admin token, for what the client would not send."""
    headers = {"Authorization": f"Bearer {cluster.token}"}
    async with httpx2.AsyncClient(base_url=cluster.url, headers=headers, trust_env=False, timeout=30) as http:
        yield http


@pytest.fixture
async def stranger(cluster: Cluster) -> AsyncIterator[httpx2.AsyncClient]:
    """Plain HTTP without any credential."""
    async with httpx2.AsyncClient(base_url=cluster.url, trust_env=False, timeout=30) as http:
        yield http


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[AsyncClient]:
    async with cluster.client() as client:
        yield client


@pytest.fixture
def issue(cluster: Cluster) -> Issue:
    """Adds a token with some scopes, of a tenant."""

    async def issue(*scopes: str, tenant: int = 1) -> str:
        async with cluster.database.connection() as connection:
            grants = EVERYTHING if "worker" in scopes else None
            return await issue_token(connection, tenant=tenant, name=f"test {scopes}", scopes=scopes, grants=grants)

    return issue


@pytest.fixture
async def neighbour(cluster: Cluster, issue: Issue) -> AsyncIterator[AsyncClient]:
    """The admin of another tenant."""
    async with cluster.database.connection() as connection:
        tenant = await connection.fetchval(
            "INSERT INTO tenants (name) VALUES ('neighbour-' || gen_random_uuid()) RETURNING tenant_id"
        )
    async with AsyncClient(cluster.url, await issue("admin", tenant=tenant)) as client:
        yield client
