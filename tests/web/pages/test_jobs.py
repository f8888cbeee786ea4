from __future__ import annotations

import re
from collections.abc import AsyncIterator
from urllib.parse import urlencode
from uuid import UUID

import httpx2
import msgspec
import pytest

from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.job import JobSpec, NoopTask, ShellTask
from mainspring.domain.params import Param
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import jobs
from mainspring.intake.executions import Submission
from mainspring.views import jobs as job_views
from mainspring.web.draw.filters import stamp
from tests.conftest import Cluster
from tests.support.history import insert_past
from tests.support.pages import Page, open_page

pytestmark = pytest.mark.anyio

HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(2)>'"
WRITES = "printf '%s\\033[31m<b>red</b>\\033[0m\\n10\\rdata: x\\n' \"$1\"; printf '%s' \"$1\" >&2; exit 7"


async def add(cluster: Cluster, spec: JobSpec) -> UUID:
    return await jobs.create(cluster.database, spec, tenant=TENANT, by="test")


async def run_to_end(cluster: Cluster, job_id: UUID) -> UUID:
    execution_id = await cluster.context.submitter.submit(Submission(TENANT, "test", job_id))
    ended = await cluster.context.live.until_final(execution_id, tenant=TENANT, wait_s=30)
    assert ended.finished_at is not None
    return execution_id


@pytest.fixture(scope="module")
async def hostile(cluster: Cluster) -> AsyncIterator[tuple[UUID, UUID]]:
    """A job whose every text is an attack, and an execution of it that failed."""
    spec = JobSpec(
        name="hostile",
        task=ShellTask(argv=("sh", "-c", WRITES, "sh", HOSTILE), env={"NOTE": HOSTILE}),
        schedule=ScheduleSpec(cron="30 2 * * *", timezone="Europe/Berlin"),
        description=HOSTILE + "{{7*7}}",
        metadata={HOSTILE: HOSTILE},
        retries=RetryPolicy(max=0),
    )
    job_id = await add(cluster, spec)
    async with cluster.worker(name=HOSTILE):
        yield job_id, await run_to_end(cluster, job_id)


async def test_the_first_pages_say_what_to_type(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    """Runs first in this module: its database is still empty."""
    for path, command in (
        ("/", 'mainspring add hello --every 5s -- echo "hello from {{fire_at}}"'),
        ("/jobs", 'mainspring add hello --every 5s -- echo "hello from {{fire_at}}"'),
        ("/executions", "mainspring run hello --follow"),
        ("/workers", "mainspring worker"),
    ):
        assert command in (await open_page(browser, path)).text, path
    assert "Nothing is scheduled yet." in (await open_page(browser, "/")).text


async def test_hostile_texts_stay_texts(browser: httpx2.AsyncClient, hostile: tuple[UUID, UUID]) -> None:
    execution_id = hostile[1]
    job = await open_page(browser, "/jobs/hostile")
    execution = await open_page(browser, f"/executions/{execution_id}")
    workers = await open_page(browser, "/workers")
    filtered = await open_page(browser, "/jobs?prefix=" + "%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E")
    tabs = ("/jobs/hostile/ledger", "/jobs/hostile/versions", "/jobs/hostile/schedule?expression=@daily")
    others = [await open_page(browser, path) for path in ("/", "/jobs", "/executions", *tabs)]
    for page in (job, execution, workers, filtered, *others):
        assert page.active_parts() == []
    for page in (job, execution, workers):
        assert HOSTILE in page.text
    assert HOSTILE + "{{7*7}}" in job.text
    refused = await browser.get("/executions", params={"job": HOSTILE})
    assert refused.status_code in (404, 422)
    assert Page(refused.text).active_parts() == []


async def test_output_is_text_with_its_colours_and_streams(
    browser: httpx2.AsyncClient, hostile: tuple[UUID, UUID]
) -> None:
    html = (await browser.get(f"/executions/{hostile[1]}")).text
    log = html[html.index('id="log"') : html.index("</div>", html.index('id="log"'))]
    assert '<i class="c-red">&lt;b&gt;red&lt;/b&gt;</i>' in log
    assert re.search('<span class="err tail" data-at="1.1" data-time="[^"]*">&#34;&gt;&lt;script&gt;', log)
    assert "\x1b" not in log
    assert "\r" not in log


async def test_the_execution_tells_where_the_time_went(browser: httpx2.AsyncClient, hostile: tuple[UUID, UUID]) -> None:
    text = (await open_page(browser, f"/executions/{hostile[1]}")).text
    for words in ("scheduled after", "for a worker", "ran ", "exit code 7", "manual by test", "failed"):
        assert words in text
    # A beginning of the id is enough.
    assert (await browser.get(f"/executions/{str(hostile[1])[:18]}")).status_code == 200


async def test_the_job_tells_when_it_fires(browser: httpx2.AsyncClient, hostile: tuple[UUID, UUID]) -> None:
    page = await open_page(browser, "/jobs/hostile")
    assert "At 02:30 every day (Europe/Berlin)" in page.text
    assert "30 2 * * * Europe/Berlin" in page.text
    assert page.text.count("02:30:00 CE") == 10  # CET or CEST
    assert "happens twice in Europe/Berlin" in page.text
    assert f"e-{hostile[1]}" in page.ids()


async def test_buttons_do_what_they_say(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    job_id = await add(cluster, JobSpec(name="pressed", task=NoopTask(), queue="nobody"))
    path = f"/jobs/{job_id}"
    csrf = (await open_page(browser, path)).csrf

    paused = await browser.post(f"{path}/pause", data={"csrf": csrf, "reason": HOSTILE, "back": "/jobs?prefix=p"})
    assert paused.headers["location"] == "/jobs?prefix=p"
    page = await open_page(browser, path)
    assert f"Paused: {HOSTILE}" in page.text
    assert page.active_parts() == []

    resumed = await browser.post(f"{path}/resume", data={"csrf": csrf, "back": "https://example.com/"})
    assert resumed.headers["location"] == "/jobs/pressed"
    assert (await job_views.get(cluster.database, "pressed", tenant=TENANT)).state == "active"

    run = await browser.post(f"{path}/run", data={"csrf": csrf})
    execution = run.headers["location"]
    assert execution.startswith("/executions/")
    assert "queued" in (await open_page(browser, execution)).text
    cancelled = await browser.post(f"{execution}/cancel", data={"csrf": csrf})
    assert cancelled.headers["location"] == execution
    assert "cancelled by test admin" in (await open_page(browser, execution)).text
    again = await browser.post(f"{execution}/cancel", data={"csrf": csrf})
    assert again.status_code == 409
    assert "already ended" in Page(again.text).text

    deleted = await browser.post(f"{path}/delete", data={"csrf": csrf})
    assert deleted.headers["location"] == "/jobs"
    assert "pressed" not in (await open_page(browser, "/jobs?prefix=pre")).text


async def test_jobs_are_paged_and_filtered(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    names = [f"many-{n:03}" for n in range(60)]
    for name in names:
        await add(cluster, JobSpec(name=name, task=NoopTask(), paused=True))
    first = await open_page(browser, "/jobs?prefix=many-")
    following = [str(a["href"]) for a in first.all("a") if a.get("rel") == "next"]
    assert len(following) == 1
    second = await open_page(browser, following[0])
    shown = [name for page in (first, second) for name in names if f" {name} " in page.text]
    assert shown == names
    assert not [a for a in second.all("a") if a.get("rel") == "next"]
    assert "No jobs match name:nothing-" in (await open_page(browser, "/jobs?prefix=nothing-")).text


async def test_executions_are_filtered_by_state_and_job(
    browser: httpx2.AsyncClient, hostile: tuple[UUID, UUID]
) -> None:
    row = f"e-{hostile[1]}"
    for path, there in (
        ("/executions", True),
        ("/executions?state=failed&state=lost", True),
        ("/executions?state=succeeded", False),
        ("/executions?job=hostile", True),
        ("/executions?job=many-001", False),
    ):
        assert (row in (await open_page(browser, path)).ids()) == there, path


async def test_mistakes_are_told_on_a_page(browser: httpx2.AsyncClient) -> None:
    for path, status, words in (
        ("/jobs/missing", 404, "There is no job 'missing'"),
        ("/executions/123", 404, "at least its first 8 digits"),
        ("/executions/00000000-0000-0000-0000-000000000000", 404, "There is no execution"),
        ("/executions?state=nonsense", 422, "is not a state"),
        ("/executions?cursor=nonsense", 422, "invalid cursor"),
        ("/ui/stream?view=nonsense", 422, "unknown view"),
    ):
        answer = await browser.get(path)
        assert answer.status_code == status, path
        assert words.lower() in Page(answer.text).text.lower(), path


async def test_pages_are_well_built(browser: httpx2.AsyncClient, hostile: tuple[UUID, UUID]) -> None:
    """One first heading, ids once, every field with a label, every svg named or hidden."""
    job = f"/jobs/{hostile[0]}"
    for path in (
        "/",
        "/jobs",
        job,
        f"{job}/ledger",
        f"{job}/versions",
        f"{job}/schedule",
        f"{job}/schedule?expression=@daily",
        f"{job}/rollback?version=1",
        "/executions",
        f"/executions/{hostile[1]}",
        "/workers",
        "/playground",
        "/calendar",
        "/playground?expression=@daily",
        "/playground?expression=1",
        "/new",
        "/login",
    ):
        page = await open_page(browser, path)
        assert len(page.all("h1")) == 1, path
        ids = [a["id"] for _, a in page.elements if "id" in a]
        assert len(ids) == len(set(ids)), path
        labelled = {a.get("for") for a in page.all("label")}
        fields = [*page.all("input"), *page.all("textarea")]
        bare = [i for i in fields if i.get("id") not in labelled and not i.get("aria-label")]
        assert [i for i in bare if i.get("type") != "hidden"] == [], path
        told = [a for a in page.all("svg") if a.get("aria-hidden") != "true"]
        assert [a for a in told if a.get("role") not in ("img", "group") or not a.get("aria-label")] == [], path
        used = {str(a["href"])[1:] for a in page.all("use")}
        assert used <= {str(a["id"]) for a in page.all("symbol")}, path


async def test_one_filter_for_jobs_with_what_is_wrong_pointed_at(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    await add(cluster, JobSpec(name="filtered-a", task=NoopTask(), queue="rare", metadata={"team": "finance"}))
    await add(cluster, JobSpec(name="filtered-b", task=NoopTask()))
    page = await open_page(browser, "/jobs?q=queue:rare+label:team%3Dfinance")
    assert "filtered-a" in page.text
    assert "filtered-b" not in page.text
    assert "queue:rare label:team=finance" in [i.get("value") for i in page.all("input")]
    nothing = await open_page(browser, "/jobs?q=nobody-has-this")
    assert "No jobs match nobody-has-this" in nothing.text
    refused = await browser.get("/jobs", params={"q": "sate:paused"})
    assert refused.status_code == 422
    said = Page(refused.text)
    assert "unknown field 'sate'" in said.text
    assert "Did you mean 'state'?" in said.text
    assert "sate:paused\n^^^^^^^^^^^" in said.raw_text
    assert said.active_parts() == []


async def test_one_filter_for_executions(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    job_id = await add(cluster, JobSpec(name="looked-for", task=NoopTask(), queue="rare"))
    made = await cluster.context.submitter.submit(Submission(TENANT, "test", job_id))
    for text in ("looked-", "job:looked-for state:queued", "queue:rare since:1h trigger:manual"):
        page = await open_page(browser, f"/executions?{urlencode({'q': text})}")
        assert f"e-{made}" in page.ids(), text
    live = (await browser.get("/executions", params={"q": "job:looked-for"})).text
    assert 'data-stream="/ui/stream?view=executions&amp;job=looked-for"' in live
    assert "data-stream" not in (await browser.get("/executions", params={"q": "queue:rare"})).text
    assert f"e-{made}" not in (await open_page(browser, "/executions?q=queue:rare+until:1h")).ids()
    for text, status in (("job:nobody-at-all", 404), ("since:never", 422)):
        refused = await browser.get("/executions", params={"q": text})
        assert refused.status_code == status
        assert text in [i.get("value") for i in Page(refused.text).all("input")], "what was typed is kept"


@pytest.mark.requirement(130)
async def test_the_dashboard_has_last_status_next_time_and_success_of_a_day(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    task = ShellTask(argv=("sh", "-c", "exit $1", "sh", "{{params.code}}"))
    spec = JobSpec(name="dash", task=task, retries=RetryPolicy(max=0))
    spec = msgspec.structs.replace(spec, params={"code": Param("integer", 0)}, schedule=ScheduleSpec(cron="30 2 * * *"))
    job_id = await add(cluster, spec)
    async with cluster.worker():
        for code in (0, 0, 0, 1):
            given = Submission(TENANT, "test", job_id, params={"code": code})
            made = await cluster.context.submitter.submit(given)
            await cluster.context.live.until_final(made, tenant=TENANT, wait_s=30)
    page = await open_page(browser, "/jobs?q=name:dash")
    assert "dash failing since" in page.text and "1 in a row at 02:30 every day" in page.text
    assert "75 %" in page.text
    strip = next(a["aria-label"] for _, a in page.elements if a.get("class") == "bars")
    assert strip == "latest 4: 3 succeeded, 1 failed"
    found = await job_views.get(cluster.database, "dash", tenant=TENANT)
    assert found.next_fire_at is not None
    assert stamp(found.next_fire_at) in [a.get("datetime") for a in page.all("time")]


async def test_skipped_fires_are_beside_the_success_rate_and_not_in_it(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    """The same numbers on the list of jobs, the statistics of the job, and in the API."""
    job_id = await jobs.create(cluster.database, JobSpec(name="rated", task=NoopTask()), tenant=TENANT, by="test")
    for state, fires in (("succeeded", 1), ("succeeded", 1), ("succeeded", 1), ("failed", 1), ("skipped", 5)):
        # Of this hour: the leader may have added up the one before it.
        await insert_past(cluster.database, job_id, state, due_h=0, ended_h=0, fires=fires)
    page = await open_page(browser, "/jobs?q=rated")
    assert "75 % 5 skipped" in " ".join(page.text.split())
    assert "3 of 4 executions in 24 hours; 5 fires skipped" in str(page.elements)
    stats = " ".join((await open_page(browser, "/jobs/rated/stats")).text.split())
    assert "75.0 %" in stats and "Skipped fires" in stats
    found = await job_views.stats(cluster.database, "rated", tenant=TENANT, since_s=86_400)
    assert (found.ended, found.succeeded, found.failed, found.skipped) == (4, 3, 1, 5)
    assert found.success_ratio == 0.75


async def test_tabs_show_the_jobs_that_fail_are_late_or_paused(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    names = ("tab-fails", "tab-recovered", "tab-late", "tab-paused")
    task = ShellTask(argv=("sh", "-c", "exit {{params.code}}"), env={"CODE": "{{params.code}}"})
    spec = JobSpec(name="x", task=msgspec.structs.replace(task, argv=("sh", "-c", "exit $CODE")),
                   params={"code": Param("integer", 0)}, retries=RetryPolicy(max=0))  # fmt: skip
    ids = {name: await add(cluster, msgspec.structs.replace(spec, name=name)) for name in names[:2]}
    await add(cluster, JobSpec(name="tab-paused", task=NoopTask(), paused=True))
    ids["tab-late"] = await add(cluster, JobSpec(name="tab-late", task=NoopTask(), queue="unserved"))
    async with cluster.worker():
        for name, codes in (("tab-fails", (0, 1, 1)), ("tab-recovered", (1, 0))):
            for code in codes:
                given = Submission(TENANT, "test", ids[name], params={"code": code})
                made = await cluster.context.submitter.submit(given)
                await cluster.context.live.until_final(made, tenant=TENANT, wait_s=30)
    await cluster.context.submitter.submit(Submission(TENANT, "test", ids["tab-late"]))
    async with cluster.database.connection() as connection:  # ten minutes pass
        await connection.execute(
            "UPDATE executions SET due_at = due_at - interval '10 minutes' WHERE job_id = $1", ids["tab-late"]
        )

    async def listed(query: str) -> set[str]:
        page = await open_page(browser, f"/jobs?q=name:tab-&{query}")
        return {name for name in names if f" {name} " in page.text}

    assert await listed("") == set(names)
    assert await listed("tab=failing") == {"tab-fails"}
    assert await listed("tab=late") == {"tab-late"}
    assert await listed("tab=paused") == {"tab-paused"}
    assert "failing since" in (text := (await open_page(browser, "/jobs?tab=failing&q=name:tab-")).text)
    assert "2 in a row" in text


async def test_jobs_are_grouped_and_sorted(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    for name, team, minute in (("grp-b", "mail", 5), ("grp-a", "shop", 50), ("grp-c", "mail", 20)):
        metadata = {"labels": {"team": team}, "owner": f"{team}@example.com"}
        schedule = ScheduleSpec(cron=f"{minute} 3 1 1 *")
        await add(cluster, JobSpec(name=name, task=NoopTask(), schedule=schedule, metadata=metadata))

    async def order(query: str) -> list[str]:
        page = await open_page(browser, f"/jobs?q=name:grp-&{query}")
        text = page.text[page.text.index("Last 20") :]
        words = ("grp-a", "grp-b", "grp-c", "mail 2", "shop 1", "mail@example.com 2", "grp 3")
        return sorted((word for word in words if f" {word} " in text), key=lambda word: text.index(f" {word} "))

    assert await order("") == ["grp-a", "grp-b", "grp-c"]
    assert await order("sort=next") == ["grp-b", "grp-c", "grp-a"]
    assert await order("group=prefix") == ["grp 3", "grp-a", "grp-b", "grp-c"]
    assert await order("group=label:team&sort=next") == ["mail 2", "grp-b", "grp-c", "shop 1", "grp-a"]
    assert (await order("group=owner"))[:3] == ["mail@example.com 2", "grp-b", "grp-c"]


async def test_selected_jobs_get_the_bulk_action_and_no_others(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    ids = [await add(cluster, JobSpec(name=f"pick-{n}", task=NoopTask())) for n in range(3)]
    page = await open_page(browser, "/jobs?q=name:pick-")
    boxes = [a["value"] for a in page.all("input") if a.get("form") == "picked"]
    assert boxes == [str(job_id) for job_id in ids]
    chosen = await open_page(browser, f"/jobs:bulk?do=pause&job={ids[0]}&job={ids[2]}")
    assert "2 jobs selected" in chosen.text
    hidden = [a for a in chosen.all("input") if a.get("type") == "hidden" and a.get("name")]
    form = {str(a["name"]): str(a["value"]) for a in hidden}
    done = await browser.post("/jobs:bulk", data={**form, "do": "pause", "reason": "moving"})
    assert "2 jobs done" in done.text
    states = [(await job_views.get(cluster.database, str(i), tenant=TENANT)).state for i in ids]
    assert states == ["paused", "active", "paused"]
    refused = await browser.get("/jobs:bulk?job=everything")
    assert refused.status_code == 422 and "not an id" in refused.text
