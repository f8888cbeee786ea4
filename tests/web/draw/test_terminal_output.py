from __future__ import annotations

import re
from uuid import UUID

import httpx2
import pytest

from mainspring import wire
from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.job import JobSpec, ShellTask
from mainspring.intake import jobs
from mainspring.web.draw.terminal_output import render
from tests.conftest import Cluster
from tests.support.live_page import submit
from tests.support.pages import Page, open_page

pytestmark = pytest.mark.anyio

LINES = 40_000
SCRIPT = f"seq -f 'line %06g <b>' 1 {LINES}; echo the end >&2"


@pytest.fixture(scope="module")
async def talker(cluster: Cluster) -> UUID:
    """An execution that has written more than a page shows at once."""
    task = ShellTask(argv=("sh", "-c", SCRIPT))
    job_id = await jobs.create(cluster.database, JobSpec(name="talker", task=task), tenant=TENANT, by="test")
    async with cluster.worker():
        execution_id = await submit(cluster, job_id)
        await cluster.context.live.until_final(execution_id, tenant=TENANT, wait_s=60)
    return execution_id


def shown(html: str) -> list[str]:
    """The lines in the log of a page."""
    begin = html.index(">", html.index('id="log"')) + 1
    text = re.sub("<summary>.*?</summary>", "", html[begin : html.index("</div>", begin)])
    return Page(text).raw_text.splitlines()


async def test_a_page_opens_at_the_end_and_goes_back_by_ranges(browser: httpx2.AsyncClient, talker: UUID) -> None:
    path = f"/executions/{talker}"
    html = (await browser.get(path)).text
    lines = shown(html)
    assert lines[-2:] == [f"line {LINES:06d} <b>", "the end"]
    assert len(html) < 400_000  # whatever it has written
    seen, ranges = lines, 0
    while back := next((a["href"] or "" for a in Page(html).all("a") if a.get("rel") == "prev"), None):
        html = (await browser.get(path + back.partition("#")[0])).text
        seen, ranges = shown(html) + seen, ranges + 1
    assert ranges > 3
    assert seen[:-1] == [f"line {n:06d} <b>" for n in range(1, LINES + 1)]  # nothing twice, nothing left out


async def test_what_came_before_is_brought_to_an_open_page(browser: httpx2.AsyncClient, talker: UUID) -> None:
    page = await open_page(browser, f"/executions/{talker}")
    log = next(a for tag, a in page.elements if a.get("id") == "log")
    place, found, more = next(a["data-at"] for tag, a in page.elements if "data-at" in a), list[str](), "yes"
    while more == "yes":
        answer = await browser.get(f"{log['data-earlier']}?before={place}")
        piece = Page(answer.text)
        assert {tag for tag, _ in piece.elements} == {"span"}
        found = piece.raw_text.splitlines() + found
        place, more = next(a["data-at"] for _, a in piece.elements if "data-at" in a), answer.headers["x-more"]
    assert found[0] == "line 000001 <b>" and found == sorted(set(found))


async def test_reading_from_the_start_goes_on_to_the_end(browser: httpx2.AsyncClient, talker: UUID) -> None:
    page = await open_page(browser, f"/executions/{talker}?place=0.-1")
    assert "line 000001 <b>" in page.text and "Earlier" not in page.text and "Beginning" in page.text


async def test_the_whole_output_is_a_file(browser: httpx2.AsyncClient, talker: UUID) -> None:
    answer = await browser.get(f"/executions/{talker}/output.txt")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-disposition"] == f'attachment; filename="{talker}.txt"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert len(answer.text.splitlines()) == LINES + 1


@pytest.mark.parametrize("path", ["?before=nonsense", "?place=nonsense", "/output?before=1"])
async def test_a_place_that_is_none_is_refused(browser: httpx2.AsyncClient, talker: UUID, path: str) -> None:
    assert (await browser.get(f"/executions/{talker}{path}")).status_code == 422


async def test_output_of_nobody_is_not_found(browser: httpx2.AsyncClient) -> None:
    nobody = UUID(int=7)
    for path in ("", "/output", "/output.txt"):
        assert (await browser.get(f"/executions/{nobody}{path}")).status_code == 404


def chunk(seq: int, text: str, stream: wire.Stream = "stdout") -> wire.LogChunk:
    return wire.LogChunk(attempt=1, seq=seq, stream=stream, text=text)


def test_a_line_drawn_over_is_shown_once_across_chunks() -> None:
    text = Page(str(render([chunk(0, "begin\n10 %\r"), chunk(1, "20 %\r"), chunk(2, "30 %\ndone\n")]))).raw_text
    assert text == "begin\n30 %↻2\ndone\n"


def test_an_unfinished_line_says_what_may_be_drawn_over_it() -> None:
    html = str(render([chunk(0, "begin\n10 %\r")]))
    assert html.endswith('<span class="out tail" data-at="1.0" data-cr></span>') is False
    assert '<span class="out tail" data-at="1.0" data-cr>10 %' in html
    assert str(render([chunk(1, "\r20 %")])).startswith('<span class="out tail" data-at="1.1" data-over>20 %')
    assert "data-over" not in render([chunk(1, "\r\nx")])
