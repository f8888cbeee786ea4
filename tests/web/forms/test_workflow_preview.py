"""The preview beside the workflow editor: problems with their places, the graph, and the keys it completes."""

from __future__ import annotations

import json

import httpx2
import pytest

from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.intake import workflows
from mainspring.manifest import read_workflows
from mainspring.web.forms.yaml_keys import known_keys
from tests.conftest import Cluster
from tests.support.pages import Page, open_page
from tests.web.forms.test_workflow_yaml import TEXT

pytestmark = pytest.mark.anyio

PATH = "/ui/workflow-preview"


async def preview(browser: httpx2.AsyncClient, text: str, workflow: str = "") -> Page:
    csrf = (await open_page(browser, "/workflows/new")).csrf
    answer = await browser.post(PATH, data={"csrf": csrf, "text": text, "saved": workflow})
    assert answer.status_code == 200, answer.text
    return Page(answer.text)


async def test_a_valid_text_is_drawn_and_nothing_is_saved(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    page = await preview(browser, TEXT.replace("NAME", "seen-only"))
    assert "Valid: 2 steps, at 02:00 every day" in page.text
    assert {"preview-problems", "preview-body", "picture"} <= set(page.ids())
    assert (await browser.get("/workflows/seen-only")).status_code == 404
    assert page.active_parts() == []


async def test_problems_have_line_column_and_message(browser: httpx2.AsyncClient) -> None:
    page = await preview(browser, TEXT.replace("needs: [a]", "needs: [<b>]"))
    (place,) = (a for a in page.all("a") if "data-line" in a)
    assert (place["data-line"], place["data-column"]) == ("10", "15")
    assert "unknown step '<b>'" in (place["data-message"] or "") and "line 10, column 15" in page.text
    assert "preview-body" not in page.ids()  # the script keeps the last graph
    assert page.active_parts() == []


async def test_no_text_is_no_error(browser: httpx2.AsyncClient) -> None:
    page = await preview(browser, " \n")
    assert "its graph appears here" in page.text and not [a for a in page.all("a") if "data-line" in a]


async def test_an_existing_workflow_cannot_be_renamed(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    (spec,) = read_workflows(TEXT.replace("NAME", "kept-name"))
    await workflows.apply(cluster.database, spec, tenant=TENANT, by="test")
    page = await preview(browser, TEXT.replace("NAME", "new-name"), "kept-name")
    assert "a workflow can't be renamed" in page.text


async def test_the_preview_needs_a_form_of_this_site(browser: httpx2.AsyncClient) -> None:
    assert (await browser.post(PATH, data={"text": TEXT})).status_code == 403


def test_keys_come_from_the_published_schema_and_stay_small() -> None:
    keys = json.loads(known_keys("Workflow"))
    assert {"kind", "metadata", "spec"} <= set(keys)
    step = keys["spec"]["steps"]["*"]
    assert {"shell", "needs", "when", "retries"} <= set(step) and "max" in step["retries"]
    assert keys["spec"]["schedule"]["cron"] == 0
    assert len(known_keys("Workflow")) < 8_000
