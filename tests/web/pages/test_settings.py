from __future__ import annotations

import re
from datetime import timedelta

import httpx2
import pytest

from mainspring.api.auth import issue_token
from mainspring.cli.serve import DEFAULT_TENANT
from mainspring.client import AsyncClient
from mainspring.domain.errors import Unauthenticated
from mainspring.domain.grants import WorkerGrants
from mainspring.store import tokens
from mainspring.store.tokens import TokenLine
from mainspring.views import audit as audit_views
from mainspring.views import blackouts as blackout_views
from tests.conftest import Cluster
from tests.support.pages import NAVIGATION, Page, open_page, sign_in


async def known(cluster: Cluster) -> dict[str, TokenLine]:
    async with cluster.database.connection() as connection:
        found = await tokens.list_tokens(connection, tenant=DEFAULT_TENANT, limit=500)
    return {token.name: token for token in found}


async def make(browser: httpx2.AsyncClient, **form: str) -> httpx2.Response:
    csrf = (await open_page(browser, "/settings")).csrf
    return await browser.post("/settings/tokens", data={"csrf": csrf, **form})


async def test_a_token_is_shown_once_works_and_can_be_revoked(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    answer = await make(browser, name="pipeline", scope_read="1", expires="90d")
    assert answer.status_code == 200
    (token,) = re.findall(r"ms_[\w-]{40,}", answer.text)
    assert token not in (await browser.get("/settings")).text
    made = (await known(cluster))["pipeline"]
    assert made.scopes == ["read"] and made.expires_at is not None
    assert timedelta(days=89) < made.expires_at - made.created_at < timedelta(days=91)
    async with AsyncClient(cluster.url, token) as client:
        await client.jobs()
    csrf = (await open_page(browser, "/settings")).csrf
    path = f"/settings/tokens/{made.token_id}/revoke"
    assert (await browser.post(path, data={"csrf": csrf})).status_code == 303
    assert "pipeline" not in await known(cluster)
    assert (await browser.post(path, data={"csrf": csrf})).status_code == 404
    entries = (
        await audit_views.list_entries(cluster.database, tenant=DEFAULT_TENANT, subject=str(made.token_id))
    ).items
    assert [(e.action, e.name) for e in entries] == [("token.revoke", "pipeline"), ("token.create", "pipeline")]
    assert entries[1].details["scopes"] == ["read"] and {e.actor for e in entries} == {"test admin"}
    cluster.context.auth._known.clear()  # what is remembered for a few seconds
    async with AsyncClient(cluster.url, token) as client:
        with pytest.raises(Unauthenticated):
            await client.jobs()


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"name": "", "scope_read": "1"}, "needs a name"),
        ({"name": "x" * 101, "scope_read": "1"}, "needs a name"),
        ({"name": "none"}, "at least one scope"),
        ({"name": "odd", "scope_odd": "1"}, "at least one scope"),
        ({"name": "odd", "scope_read": "1", "expires": "soon"}, "soon"),
        ({"name": "odd", "scope_read": "1", "expires": "1000y"}, "1000y"),
        ({"name": "fleet", "scope_worker": "1"}, "names its queues"),
        ({"name": "fleet", "scope_worker": "1", "queues": "short, No Queue"}, "No Queue"),
    ],
)
async def test_a_token_that_makes_no_sense_is_refused(
    cluster: Cluster, browser: httpx2.AsyncClient, form: dict[str, str], words: str
) -> None:
    before = await known(cluster)
    answer = await make(browser, **form)
    assert answer.status_code == 422 and words in answer.text
    assert await known(cluster) == before


async def test_a_worker_token_shows_what_it_grants(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    answer = await make(browser, name="fleet", scope_worker="1", queues="short, gpu-*", labels="zone=eu")
    assert answer.status_code == 200
    made = (await known(cluster))["fleet"]
    assert made.grants == WorkerGrants(("short", "gpu-*"), ("zone=eu",), ("*",))
    assert "queues short, gpu-*; labels zone=eu" in (await browser.get("/settings")).text


async def test_only_administrators_see_and_make_tokens(cluster: Cluster) -> None:
    async with cluster.database.connection() as connection:
        token = await issue_token(connection, tenant=DEFAULT_TENANT, name="writer", scopes=("read", "write"))
    async with httpx2.AsyncClient(base_url=cluster.url, headers=NAVIGATION, timeout=30) as writer:
        await sign_in(writer, token)
        page = await open_page(writer, "/settings")
        assert "tokens" not in page.ids() and "test admin" not in page.text
        assert not {"/system", "/failures"} & {a.get("href") for a in page.all("a")}
        for path in ("/settings/tokens", "/queues/short/pause"):
            answer = await writer.post(path, data={"csrf": page.csrf, "name": "sneaky", "scope_admin": "1"})
            assert answer.status_code == 403, path
            assert "lacks the scope" in Page(answer.text).text
        assert (await writer.get("/system")).status_code == 403
    assert "sneaky" not in await known(cluster)


async def test_a_blackout_begins_now_and_is_ended(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    csrf = (await open_page(browser, "/settings")).csrf
    refused = await browser.post("/settings/blackouts", data={"csrf": csrf, "lasts": ""})
    assert refused.status_code == 422 and "duration is required" in refused.text
    answer = await browser.post(
        "/settings/blackouts", data={"csrf": csrf, "lasts": "2h", "queue": "long", "reason": "the store moves"}
    )
    assert answer.status_code == 303
    (found,) = (await blackout_views.list_blackouts(cluster.database, tenant=DEFAULT_TENANT)).items
    assert (found.queue, found.reason) == ("long", "the store moves")
    assert "the store moves" in (await open_page(browser, "/settings")).text
    ended = await browser.post(f"/settings/blackouts/{found.blackout_id}/end", data={"csrf": csrf})
    assert ended.status_code == 303
    assert (await blackout_views.list_blackouts(cluster.database, tenant=DEFAULT_TENANT)).items == []
