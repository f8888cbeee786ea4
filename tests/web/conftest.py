"""Browsers without a screen: they keep cookies, say where they come from, and read what they are given."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from tests.conftest import Cluster
from tests.support.pages import NAVIGATION, follow_link


@pytest.fixture
async def stranger(cluster: Cluster) -> AsyncIterator[httpx2.AsyncClient]:
    """A browser nobody has signed in."""
    async with httpx2.AsyncClient(base_url=cluster.url, headers=NAVIGATION, timeout=30) as browser:
        yield browser


@pytest.fixture
async def browser(cluster: Cluster, stranger: httpx2.AsyncClient) -> httpx2.AsyncClient:
    """A browser that followed the link of an administrator."""
    caller = await cluster.context.auth.by_token(cluster.token)
    key, _ = await cluster.context.auth.new_login_link(caller)
    assert (await follow_link(stranger, f"/login?k={key}")).status_code == 303
    return stranger
