from __future__ import annotations

import httpx2
import msgspec
import pytest

from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.errors import Problem
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import workflows
from mainspring.manifest import locate, read_workflows
from mainspring.views import workflows as workflow_views
from mainspring.web.forms.workflow_examples import EXAMPLES
from tests.conftest import Cluster
from tests.support.pages import Page, open_page, posted

pytestmark = pytest.mark.anyio

TEXT = """\
kind: Workflow
metadata: {name: NAME}
spec:
  schedule: {cron: "0 2 * * *"}
  steps:
    a:
      shell: [echo, hi]
    b:
      shell: [echo, ho]
      needs: [a]
"""


async def test_a_workflow_is_written_looked_at_and_added(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    page = await open_page(browser, "/workflows/new")
    form = posted(page) | {"text": TEXT.replace("NAME", "written").replace("\n", "\r\n"), "do": "save"}
    looked = Page((await browser.post("/workflows/new", data=form)).text)
    assert "2 steps, at 02:00 every day" in looked.text
    assert [g for g in looked.all("svg") if (g.get("class") or "").startswith("node")], "the graph of what would be"
    assert looked.active_parts() == []
    assert (await browser.get("/workflows/written")).status_code == 404, "looking adds nothing"
    answer = await browser.post("/workflows/new", data=posted(looked) | {"do": "save"})
    found = await workflow_views.get(cluster.database, "written", tenant=TENANT)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/workflows/{found.job_id}")
    assert (found.version, found.order) == (1, ["a", "b"])
    again = await browser.post("/workflows/new", data=posted(looked) | {"do": "save"})
    assert again.status_code == 409
    assert "'written' is taken" in Page(again.text).text


async def test_a_change_is_a_difference_and_of_the_version_seen(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    (spec,) = read_workflows(TEXT.replace("NAME", "revised"))
    await workflows.apply(cluster.database, spec, tenant=TENANT, by="test")
    page = await open_page(browser, "/workflows/revised/edit")
    form = posted(page)
    assert read_workflows(form["text"]) == [spec]
    nothing = Page((await browser.post("/workflows/revised/edit", data=form | {"do": "review"})).text)
    assert "No changes." in nothing.text
    form["text"] = form["text"].replace("0 2 * * *", "0 4 * * *")
    looked = Page((await browser.post("/workflows/revised/edit", data=form | {"do": "review"})).text)
    assert "- cron: 0 2 * * *" in looked.text
    assert "+ cron: 0 4 * * *" in looked.text
    stale = posted(looked) | {"do": "save"}
    assert (await browser.post("/workflows/revised/edit", data=stale)).status_code == 303
    found = await workflow_views.get(cluster.database, "revised", tenant=TENANT)
    assert (found.version, found.spec.schedule) == (2, ScheduleSpec(cron="0 4 * * *"))
    refused = await browser.post("/workflows/revised/edit", data=stale | {"text": form["text"].replace("hi", "hey")})
    assert refused.status_code == 409
    text = Page(refused.text).text
    assert "version 2 was saved while you edited version 1" in text
    assert "+ cron: 0 4 * * *" in text, "what they changed"
    assert "+ - hey" in text, "what I would change"
    assert (await workflow_views.get(cluster.database, "revised", tenant=TENANT)).version == 2


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("    b:\n", "    b\n", "line 9, column 12"),
        ("needs: [a]", "needs: [c]", "line 10, column 15: unknown step 'c'"),
        ("shell: [echo, ho]", "shell: [echo, '{{nope}}']", "line 9, column 21"),
        ("steps:", "stepz:", "line 5, column 3"),
        ("0 2 * * *", "0 25 * * *", "25 is out of range"),
        ("kind: Workflow", "kind: Job", "line 1, column 1"),
        (TEXT, "", "the file is empty"),
        (TEXT, TEXT + "---\n" + TEXT, "the text has 2 workflows"),
        ("name: NAME", "name: 'two words'", "line 2, column 12"),
    ],
)
async def test_errors_have_a_line_and_a_column(
    cluster: Cluster, browser: httpx2.AsyncClient, old: str, new: str, says: str
) -> None:
    text = TEXT.replace(old, new)
    form = posted(await open_page(browser, "/workflows/new")) | {"text": text, "do": "review"}
    answer = await browser.post("/workflows/new", data=form)
    assert answer.status_code == 422
    page = Page(answer.text)
    assert says in page.text
    assert page.filled()["text"].strip() == text.strip(), "what was typed is kept"
    assert page.active_parts() == []


async def test_another_name_is_another_workflow(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    (spec,) = read_workflows(TEXT.replace("NAME", "named"))
    await workflows.apply(cluster.database, spec, tenant=TENANT, by="test")
    form = posted(await open_page(browser, "/workflows/named/edit"))
    form |= {"text": form["text"].replace("named", "renamed"), "do": "review"}
    answer = await browser.post("/workflows/named/edit", data=form)
    assert answer.status_code == 422
    assert "a workflow can't be renamed: this is 'named'" in Page(answer.text).text
    copy = posted(await open_page(browser, "/workflows/new?like=named"))
    assert "name: named-copy" in copy["text"]


@pytest.mark.parametrize("name", EXAMPLES)
async def test_every_example_is_right(cluster: Cluster, browser: httpx2.AsyncClient, name: str) -> None:
    page = await open_page(browser, "/workflows/new?example=" + name.replace(" ", "+"))
    (spec,) = read_workflows(page.filled()["text"])
    looked = await browser.post("/workflows/new", data=posted(page) | {"do": "review"})
    assert looked.status_code == 200
    unique = msgspec.structs.replace(spec, name=f"example-{spec.name}")
    await workflows.apply(cluster.database, unique, tenant=TENANT, by="test")


@pytest.mark.parametrize(
    "text",
    [
        "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)),
        "a: &a " + "x" * 2000 + "\nb: [" + ", ".join(["*a"] * 200) + "]\n",
        "a: &a [*a]\n",
        "{" * 2500,
        "a: " + "9" * 5000,
        "a: 1" + ":1" * 50_000,
        "- " * 100_000,
        "x: 1\n" + "- a\n" * 30_000,
    ],
    ids=["aliases", "long alias", "alias in itself", "braces", "digits", "sexagesimal", "dashes", "lines"],
)
async def test_a_text_that_grows_or_takes_long_is_refused(browser: httpx2.AsyncClient, text: str) -> None:
    for path in ("/workflows/new", "/new.yaml"):
        form = posted(await open_page(browser, path)) | {"text": text, "do": "review"}
        answer = await browser.post(path, data=form)
        assert answer.status_code == 422
        assert len(answer.text) < 100_000 + 10 * len(text)


async def test_a_long_text_is_read_elsewhere_with_the_same_problems(browser: httpx2.AsyncClient) -> None:
    text = "name: long\nsteps:\n" + "".join(f"  s{n}: {{shell: [echo, hi]}}\n" for n in range(200))
    form = posted(await open_page(browser, "/workflows/new")) | {"do": "review"}
    answer = await browser.post("/workflows/new", data=form | {"text": text})
    assert answer.status_code == 200
    answer = await browser.post("/workflows/new", data=form | {"text": text + "  wrong: {shell: echo}\n"})
    assert answer.status_code == 422
    assert "shell cannot be a string" in Page(answer.text).text and "line 203" in Page(answer.text).text.lower()


def test_places_in_plain_and_short_forms() -> None:
    text = "name: x\nsteps:\n  a:\n    task: {kind: shell, argv: [echo, hi]}\n"
    assert locate(text, [Problem("/steps/a/task/argv/1", "wrong")])[0][1:] == (4, 38)
    assert locate(text, [Problem("/steps/a/needs", "wrong")])[0][1:] == (3, 3), "what is missing is missing there"
    assert locate(text, [Problem("/nowhere", "wrong")])[0][1:] == (1, 1), "in the document"
    assert locate("{", [Problem("/name", "wrong")])[0][1:] == (0, 0)
