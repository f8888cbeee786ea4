"""Every role against every route: API, pages, forms and streams, by real requests."""

from __future__ import annotations

import httpx2
import pytest

from mainspring import wire
from mainspring.api.app import endpoints
from mainspring.client import AsyncClient
from mainspring.web.app import every_page
from tests.conftest import Cluster
from tests.support.pages import NAVIGATION, open_page, sign_in
from tests.support.role_matrix import MAY, filled, is_refused

pytestmark = pytest.mark.anyio


async def token_of(neighbour: AsyncClient, client: AsyncClient, role: str) -> str:
    """A token of a role in a tenant that is not the first, whose administrators have more rights."""
    if role == "cluster-admin":
        return (await client.issue_token(wire.NewToken(name=role, role=role))).token
    return (await neighbour.issue_token(wire.NewToken(name=role, role=role))).token


@pytest.mark.parametrize("role", MAY)
async def test_a_role_opens_its_routes_and_no_others(
    cluster: Cluster, neighbour: AsyncClient, client: AsyncClient, role: str
) -> None:
    token = await token_of(neighbour, client, role)
    surprises = []
    async with httpx2.AsyncClient(base_url=cluster.url, headers=NAVIGATION, timeout=30) as browser:
        await sign_in(browser, token)
        form = {"csrf": (await open_page(browser, "/settings")).csrf}
        for page in every_page():
            if page.get is not None and await is_refused(browser, "GET", page.path) == (page.read_scope in MAY[role]):
                surprises.append(f"GET {page.path}")
            if page.post is not None:
                refused = await is_refused(browser, "POST", page.path, data=form)
                if refused == (page.write_scope in MAY[role]):
                    surprises.append(f"POST {page.path}")
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(base_url=cluster.url, headers=headers, trust_env=False, timeout=30) as http:
        for e in endpoints():
            if await is_refused(http, e.method, e.path) == (e.scope in MAY[role]):
                surprises.append(f"{e.method} {e.path}")
    assert surprises == []


@pytest.mark.requirement(120)
@pytest.mark.parametrize("role", MAY)
async def test_only_operators_and_administrators_read_dead_letters(
    cluster: Cluster, neighbour: AsyncClient, client: AsyncClient, role: str
) -> None:
    headers = {"Authorization": f"Bearer {await token_of(neighbour, client, role)}"}
    paths = [e.path for e in endpoints() if "dead-letter" in e.path and e.method == "GET"]
    assert len(paths) >= 3
    async with httpx2.AsyncClient(base_url=cluster.url, headers=headers, trust_env=False, timeout=30) as http:
        for path in (*paths, "/failures"):
            status = (await http.get(filled(path))).status_code
            assert (status == 403) == (role in ("viewer", "submitter")), (path, status)


def test_streams_are_part_of_the_matrix() -> None:
    assert {"/api/v1/stream", "/api/v1/executions/{ref}/logs"} <= {e.path for e in endpoints()}
    assert "/ui/stream" in {page.path for page in every_page()}
