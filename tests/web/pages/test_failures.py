"""The pages about what failed for good, as a browser without script uses them."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from mainspring import wire
from mainspring.api.auth import issue_token
from mainspring.cli.failure_context import failure_lines
from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.params import Param
from mainspring.domain.retry import RetryPolicy
from mainspring.intake import dead_letters
from mainspring.intake import runs as run_actions
from tests.conftest import Cluster
from tests.support.dead_letters import DeadLetterBench
from tests.support.pages import Page, open_page, sign_in
from tests.support.runs import RunBench

pytestmark = pytest.mark.anyio

HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(2)>'"


@pytest.fixture
def desk(cluster: Cluster) -> DeadLetterBench:
    return DeadLetterBench(cluster.database)


async def letters(desk: DeadLetterBench, *errors: str, **spec: Any) -> list[UUID]:
    job = await desk.job(retries=RetryPolicy(max=0), queue=f"q{uuid4().hex[:8]}", **spec)
    return [await desk.letter(job, error) for error in errors]


async def post(browser: httpx2.AsyncClient, page: Page, path: str, **data: str) -> httpx2.Response:
    return await browser.post(path, data={"csrf": page.csrf, **data})


async def test_groups_lead_to_letters_and_letters_to_everything_about_them(
    desk: DeadLetterBench, browser: httpx2.AsyncClient
) -> None:
    first, second, other = await letters(desk, "row 1 is bad", "row 2 is bad", HOSTILE)
    letter = await desk.get(second)
    page = await open_page(browser, "/failures")
    assert page.active_parts() == []
    assert f"g-{letter.job_id}-{letter.fingerprint}" in page.ids()
    group = await open_page(browser, f"/failures?job={letter.job_id}&fingerprint={letter.fingerprint}")
    assert {f"d-{first}", f"d-{second}"} <= group.ids() and f"d-{other}" not in group.ids()
    one = await open_page(browser, f"/failures/{other}")
    assert one.active_parts() == [] and HOSTILE in one.text and "Attempts" in one.text
    assert "Replay or dismiss" in (await open_page(browser, f"/executions/{other}")).text
    assert (await browser.get(f"/failures/{uuid4()}")).status_code == 404


async def test_a_failure_shows_the_change_before_it_similar_ones_and_commands(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    """The error, with its traceback, appears once; the output and what to do follow it."""
    wrong = "import sys; print('loading'); import traceback; raise ValueError('no such column')"
    spec = {
        "name": f"evidence-{uuid4().hex[:8]}",
        "task": {"kind": "shell", "argv": ["python3", "-c", "print('ok')"]},
        "retries": {"max": 1, "base": "0s"},
        "params": {"day": {"type": "string", "default": "today"}},
    }
    async with cluster.client() as client, cluster.worker():
        job = await client.create_job(spec)
        await client.patch_job(job.name, {"task": {"argv": ["python3", "-c", wrong]}})
        ids = []
        for _ in range(2):
            made = await client.trigger(job.name, wire.RunNow(params={"day": "monday"}))
            assert (await client.wait(made.execution_id, timeout_s=60)).state == "failed"
            ids.append(made.execution_id)
        printed = "\n".join(await failure_lines(client, await client.dead_letter(ids[1])))
    for text in (
        "last output", "ValueError: no such column", "change before it: version 2", "  task: ", "similar failures",
        f"mainspring dead-letters replay {ids[1]} -p day=monday", f"mainspring jobs rollback {job.name} 1",
    ):  # fmt: skip
        assert text in printed, text
    page = await open_page(browser, f"/failures/{ids[1]}")
    assert page.active_parts() == []
    for text in (
        "exit code 1: ValueError: no such column", "loading", "Change before the failure", "Version 2 of",
        "Similar failures", f"mainspring dead-letters replay {ids[1]} -p day=monday",
        f"mainspring jobs pause {job.name} --reason WHY", f"mainspring jobs rollback {job.name} 1",
    ):  # fmt: skip
        assert text in page.text, text
    assert str(ids[0]) in str(page.all("a"))
    one = await open_page(browser, f"/executions/{ids[1]}")
    # Once in the error, and once in the output of each of the two attempts.
    assert one.text.count("Traceback (most recent call last)") == 3
    assert "monday" in one.text and "Rerun…" in one.text
    listed = await open_page(browser, "/failures")
    assert "first with version 2" in listed.text and "2failures" in listed.text.replace(" ", "")
    group = (await cluster.client().dead_letter_groups()).items
    mine = next(g for g in group if g.job == job.name)
    assert (mine.first_version, sum(mine.by_hour), mine.count) == (2, 2, 2)
    answer = await post(browser, listed, "/failures/group/claim", job=str(job.job_id), fingerprint=mine.fingerprint)
    assert answer.status_code == 303
    assert "assigned to" in (await open_page(browser, "/failures")).text
    plan = await browser.get("/failures/plan", params={"job": job.name, "fingerprint": mine.fingerprint})
    assert job.name in Page(plan.text).text and "Fire" in Page(plan.text).text


async def test_the_letter_of_a_step_leads_to_its_run(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    bench = RunBench(cluster.database)
    run = await bench.begin(f"nightly-{uuid4().hex[:8]}", {"load": {}})
    (step,) = run.steps
    mine = [row for row in await bench.claim() if row[1]["execution_id"] == step.execution_id]
    await bench.end(mine, lambda _: "failed")
    page = await open_page(browser, f"/failures/{step.execution_id}")
    assert f"{run.workflow} / load" in page.text and "A step is rerun with its run" in page.text
    assert "Parameters (JSON)" not in page.text
    assert f"/runs/{run.run_id}/rerun" in {link.get("href") for link in page.all("a")}
    assert f"{run.workflow} / load" in (await open_page(browser, "/executions")).text
    new = await run_actions.rerun(bench.runs, run.run_id, wire.Rerun(), tenant=TENANT, by="a new user")
    await run_actions.cancel(bench.runs, new.run_id, tenant=TENANT, by="a new user")
    assert "its run was repeated" in (await open_page(browser, f"/failures/{step.execution_id}")).text


async def test_claim_note_replay_with_other_params_and_what_became_of_it(
    desk: DeadLetterBench, browser: httpx2.AsyncClient
) -> None:
    (letter,) = await letters(desk, "no", params={"n": Param(type="integer", default=1)})
    path = f"/failures/{letter}"
    page = await open_page(browser, path)
    assert (await post(browser, page, f"{path}/claim")).headers["location"] == path
    assert (await post(browser, page, f"{path}/note", note="ask the bank")).status_code == 303
    page = await open_page(browser, path)
    assert "Assigned to you until" in page.text and "ask the bank" in page.text and "Release" in page.text
    wrong = await post(browser, page, f"{path}/replay", params="[1]")
    assert wrong.status_code == 422 and "not a JSON object" in wrong.text
    assert (await post(browser, page, f"{path}/replay", params='{"m": 5}')).status_code == 422
    done = await post(browser, page, f"{path}/replay", params='{"n": 5}')
    twice = await post(browser, page, f"{path}/replay", params='{"n": 5}')
    assert done.status_code == 303 and done.headers["location"] == twice.headers["location"]
    made = UUID(done.headers["location"].removeprefix("/executions/"))
    assert (await desk.look(made)).params == {"n": 5}
    assert "which is still running" in (await open_page(browser, path)).text
    await desk.settle_one("succeeded")
    await desk.follow()
    assert "Resolved by the execution" in (await open_page(browser, path)).text


async def test_a_group_is_replayed_after_a_look_at_the_plan(desk: DeadLetterBench, browser: httpx2.AsyncClient) -> None:
    ids = await letters(desk, "a 1", "a 2", "a 3")
    letter = await desk.get(ids[0])
    choice = {"job": str(letter.job_id), "fingerprint": letter.fingerprint}
    bad = await browser.get("/failures/plan", params=choice | {"rate": "fast"})
    assert bad.status_code == 422 and "not a rate" in bad.text
    plan = Page((await browser.get("/failures/plan", params=choice | {"rate": "10/1m", "canary": "1"})).text)
    assert "Replay 3 dead letters" in plan.text and "the other 2 if it succeeds" in plan.text
    assert await desk.states(*ids) == ["open"] * 3, "a look changes nothing"
    answer = await post(browser, plan, "/failures/group/replay", **choice, rate="10/1m", canary="1")
    assert answer.status_code == 303
    assert sorted(await desk.states(*ids)) == ["held", "held", "replaying"]
    held = sorted(ids)[1]
    assert "Will be replayed if the canary" in (await open_page(browser, f"/failures/{held}")).text
    assert f"d-{held}" in (await open_page(browser, "/failures?state=held")).ids()
    await desk.settle_one("failed", error="a 4")
    await desk.follow()


async def test_dismissing_needs_a_reason(desk: DeadLetterBench, browser: httpx2.AsyncClient) -> None:
    one, two, three = await letters(desk, "x 1", "y 1", "y 2")
    page = await open_page(browser, f"/failures/{one}")
    refused = await post(browser, page, f"/failures/{one}/dismiss", reason=" ")
    assert refused.status_code == 422 and "reason is required" in refused.text
    assert (await post(browser, page, f"/failures/{one}/dismiss", reason="known")).status_code == 303
    assert "Dismissed by" in (await open_page(browser, f"/failures/{one}")).text
    letter = await desk.get(two)
    choice = {"job": str(letter.job_id), "fingerprint": letter.fingerprint}
    assert (await post(browser, page, "/failures/group/dismiss", **choice, reason="both")).status_code == 303
    assert await desk.states(one, two, three) == ["dismissed"] * 3


async def test_what_another_works_on_has_no_buttons(desk: DeadLetterBench, browser: httpx2.AsyncClient) -> None:
    (letter,) = await letters(desk, "no")
    await dead_letters.claim_one(desk.database, letter, "10m", tenant=TENANT, by="ann")
    page = await open_page(browser, f"/failures/{letter}")
    assert "Assigned to ann until" in page.text
    assert not [f for f in page.all("form") if str(f.get("action")).startswith("/failures")]
    answer = await post(browser, page, f"/failures/{letter}/dismiss", reason="x")
    assert answer.status_code == 409 and "nn has claimed it until" in answer.text


async def test_the_pages_are_for_those_who_may_operate(
    cluster: Cluster, desk: DeadLetterBench, stranger: httpx2.AsyncClient
) -> None:
    (letter,) = await letters(desk, "no")
    async with cluster.database.connection() as connection:
        token = await issue_token(connection, tenant=TENANT, name="reader", scopes=("read", "write"))
    await sign_in(stranger, token)
    for path in ("/failures", f"/failures/{letter}", "/failures/plan"):
        assert (await stranger.get(path)).status_code == 403
    page = await open_page(stranger, "/")
    assert not [a for a in page.all("a") if a.get("href") == "/failures"]
    assert (await post(stranger, page, f"/failures/{letter}/dismiss", reason="x")).status_code == 403
    assert isinstance(await desk.get(letter), wire.DeadLetter)
