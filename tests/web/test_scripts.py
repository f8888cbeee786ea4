from __future__ import annotations

import gzip

import httpx2
import pytest

from mainspring.web.render import ASSETS
from tests.conftest import Cluster
from tests.support.pages import open_page
from tests.support.workflow_pages import GATES, begun

pytestmark = pytest.mark.anyio

BUDGET = 60_000


async def test_no_page_brings_more_script_than_it_may(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    """As it travels; what a page loads later counts too."""
    run = await begun(cluster, "scripted", GATES)
    for path in (
        "/",
        f"/runs/{run.run_id}",
        f"/executions/{run.run_id}",
        f"/workflows/{run.job_id}",
        "/workflows/new",
        "/calendar",
    ):
        page = await open_page(browser, path)
        wanted = [a["src"] or "" for a in page.all("script")]
        wanted += [later for _, a in page.elements if (later := a.get("data-dagre"))]
        answers = [await browser.get(address) for address in wanted]
        assert all(answer.status_code == 200 for answer in answers), path
        assert 0 < sum(len(gzip.compress(answer.content)) for answer in answers) <= BUDGET, path


async def test_what_was_not_fetched_is_not_asked_for(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    run = await begun(cluster, "plain", GATES)
    page = await open_page(browser, f"/runs/{run.run_id}")
    picture = next(a for _, a in page.elements if a.get("id") == "picture")
    assert ("data-dagre" in picture) == ("dagre.js" in ASSETS)
