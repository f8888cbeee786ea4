from __future__ import annotations

import httpx2
import pytest

from mainspring.cli.serve import DEFAULT_TENANT
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.intake import jobs
from tests.conftest import Cluster


@pytest.fixture(scope="module")
async def job_id(cluster: Cluster) -> str:
    spec = JobSpec(name="found", task=NoopTask())
    return str(await jobs.create(cluster.database, spec, tenant=DEFAULT_TENANT, by="test"))


async def place(browser: httpx2.AsyncClient, text: str) -> str:
    answer = await browser.get("/search", params={"q": text})
    assert answer.status_code == 303
    return str(answer.headers["location"])


async def test_a_name_or_an_id_leads_to_its_page(cluster: Cluster, browser: httpx2.AsyncClient, job_id: str) -> None:
    async with cluster.client() as client:
        execution = str((await client.trigger("found")).execution_id)
    assert await place(browser, "found") == f"/jobs/{job_id}"
    assert await place(browser, f" {job_id} ") == f"/jobs/{job_id}"
    assert await place(browser, execution) == f"/executions/{execution}"
    assert await place(browser, execution[:18]) == f"/executions/{execution}"
    async with cluster.worker(name="finder"):
        where = await place(browser, "finder")
        assert where.startswith("/workers/") and (await browser.get(where)).status_code == 200


@pytest.mark.parametrize(
    "text", ["fou", "nothing", "0123456789abcdef", "//example.com", "a\\b", "%0d%0a", "é", "?x=1&y"]
)
async def test_what_is_unknown_is_looked_for_among_the_names_of_jobs(
    browser: httpx2.AsyncClient, job_id: str, text: str
) -> None:
    where = await place(browser, text)
    assert where.startswith("/jobs?prefix=")
    assert (await browser.get(where)).status_code == 200


async def test_nothing_typed_leads_to_all_jobs(browser: httpx2.AsyncClient) -> None:
    assert await place(browser, "") == "/jobs"
