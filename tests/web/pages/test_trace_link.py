"""Pages of executions link to their trace, if the server knows the address of the tracing UI."""

from __future__ import annotations

import click
import httpx2
import pytest

from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.cli.server_settings import check_trace_url
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.intake import jobs
from tests.conftest import started
from tests.support.live_page import submit
from tests.support.pages import NAVIGATION, open_page, sign_in

pytestmark = pytest.mark.anyio

TEMPO = "https://tempo.example.com/trace/{trace_id}?tab=spans"


async def test_an_execution_that_began_links_to_its_trace(database_url: str) -> None:
    async with (
        started(database_url, trace_url=TEMPO) as cluster,
        httpx2.AsyncClient(base_url=cluster.url, headers=NAVIGATION, timeout=60) as browser,
    ):
        await sign_in(browser, cluster.token)
        job_id = await jobs.create(cluster.database, JobSpec(name="traced", task=NoopTask()), tenant=TENANT, by="test")
        made = await submit(cluster, job_id)
        wanted = TEMPO.format(trace_id=made.hex)
        assert wanted not in [a["href"] for a in (await open_page(browser, f"/executions/{made}")).all("a")]
        async with cluster.worker():
            await cluster.context.live.until_final(made, tenant=TENANT, wait_s=30)
        (link,) = [a for a in (await open_page(browser, f"/executions/{made}")).all("a") if a["href"] == wanted]
        assert "noreferrer" in (link["rel"] or "")


@pytest.mark.parametrize(
    "wrong", ["tempo", "ftp://tempo/{trace_id}", "https://tempo.example.com/trace", "javascript:{trace_id}"]
)
def test_an_address_that_is_not_one_of_a_trace_is_refused(wrong: str) -> None:
    context, parameter = click.Context(click.Command("serve")), click.Option(["--trace-url"])
    with pytest.raises(click.BadParameter, match="trace_id"):
        check_trace_url(context, parameter, wrong)
    assert check_trace_url(context, parameter, TEMPO) == TEMPO
