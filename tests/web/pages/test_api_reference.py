"""The API reference: every operation, without script and without requests to other sites."""

from __future__ import annotations

import re
import shlex

import httpx2
import pytest

from mainspring.api.app import endpoints
from mainspring.web.pages.api_reference import reference
from tests.conftest import Cluster
from tests.support.pages import open_page

pytestmark = pytest.mark.anyio


async def test_every_operation_is_listed_and_has_a_page(browser: httpx2.AsyncClient) -> None:
    listed = await browser.get("/api/docs")
    ids = dict.fromkeys(re.findall(r'href="/api/docs/(\w+)"', listed.text))
    assert len(ids) == len(endpoints())
    for operation_id in ids:
        answer = await browser.get(f"/api/docs/{operation_id}")
        assert answer.status_code == 200, operation_id
        assert {"<h2>Example</h2>", "<h2>Responses</h2>"} <= set(re.findall(r"<h2>\w+</h2>", answer.text))
        assert not re.findall(r'(?:src|href)="(?:https?:)?//', answer.text), "nothing of another site"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]


async def test_an_operation_names_scope_parameters_types_and_codes(browser: httpx2.AsyncClient) -> None:
    page = (await open_page(browser, "/api/docs/jobs_trigger")).text
    for text in ("Run a job now", "write", "Idempotency-Key", "RunNow", "Execution", "201", "409", "422", "429"):
        assert text in page, text


async def test_the_filter_needs_all_words(browser: httpx2.AsyncClient) -> None:
    page = await browser.get("/api/docs", params={"q": "POST backfill"})
    found = re.findall(r'href="/api/docs/(\w+)"', page.text)
    assert "backfills_create" in found and not [f for f in found if not f.startswith("backfills")]
    assert "No operation matches" in (await open_page(browser, "/api/docs?q=nothing+like+it")).text
    assert (await browser.get("/api/docs/none")).status_code == 404


async def test_it_is_linked_from_the_system_page_and_every_help_dialog(browser: httpx2.AsyncClient) -> None:
    assert (await browser.get("/system")).text.count('href="/api/docs"') == 2
    assert 'href="/api/docs"' in (await browser.get("/jobs")).text


async def test_strangers_are_asked_to_sign_in(cluster: Cluster) -> None:
    async with httpx2.AsyncClient(base_url=cluster.url, trust_env=False, timeout=30) as stranger:
        assert (await stranger.get("/api/docs")).status_code == 401


async def test_the_example_of_a_job_creates_one(cluster: Cluster) -> None:
    command = shlex.split(reference().curl("jobs_create", cluster.url))
    assert command[:3] == ["curl", "-X", "POST"] and command[3] == f"{cluster.url}/api/v1/jobs"
    body = command[command.index("-d") + 1].replace("…", "from-the-reference")
    headers = {"Authorization": f"Bearer {cluster.token}", "Content-Type": "application/json"}
    async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=30) as http:
        answer = await http.post(command[3], content=body)
    assert answer.status_code == 201, (body, answer.text)
