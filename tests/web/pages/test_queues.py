from __future__ import annotations

import httpx2

from mainspring.cli.serve import DEFAULT_TENANT
from mainspring.domain.job import JobSpec, ShellTask
from mainspring.domain.limit import Concurrency
from mainspring.domain.retry import RetryPolicy
from mainspring.intake import jobs
from mainspring.store.db import database_now_ms
from mainspring.store.queue_samples import write_queue_samples
from mainspring.views import queues
from tests.conftest import Cluster
from tests.support.pages import open_page
from tests.support.processes import until_async


async def made(cluster: Cluster, name: str, *argv: str, **more: object) -> None:
    spec = JobSpec(name=name, task=ShellTask(argv=argv), retries=RetryPolicy(max=0), **more)  # type: ignore[arg-type]
    await jobs.create(cluster.database, spec, tenant=DEFAULT_TENANT, by="test")


async def test_queues_show_what_waits_who_holds_a_limit_and_that_nobody_serves_them(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    await made(cluster, "waiting", "true", queue="lonely", concurrency=Concurrency(key="one", limit=1))
    async with cluster.client() as client:
        await client.trigger("waiting")
    page = await open_page(browser, "/queues")
    assert "q-lonely" in page.ids()
    assert "No workers" in page.text and "one 1 concurrent 0 of 1" in page.text
    assert page.active_parts() == []


async def test_a_queue_is_paused_and_resumed_by_an_administrator(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    csrf = (await open_page(browser, "/queues")).csrf
    for action, paused in (("pause", True), ("pause", True), ("resume", False)):
        answer = await browser.post(f"/queues/short/{action}", data={"csrf": csrf})
        assert answer.status_code == 303
        found = await queues.overview(cluster.database, tenant=DEFAULT_TENANT)
        assert next(q for q in found.items if q.name == "short").settings.paused is paused
    assert (await browser.post("/queues/NOT A QUEUE/pause", data={"csrf": csrf})).status_code == 422


async def test_a_pause_has_a_reason_which_the_list_shows(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    page = await open_page(browser, "/queues/long/pause")
    assert "Pause the queue long" in page.text and "f-reason" in page.ids()
    answer = await browser.post("/queues/long/pause", data={"csrf": page.csrf, "reason": "the <b>disk</b> is full"})
    assert answer.status_code == 303
    shown = await open_page(browser, "/queues")
    assert "paused by" in shown.text and ": the <b>disk</b> is full" in shown.text and shown.active_parts() == []
    await browser.post("/queues/long/resume", data={"csrf": page.csrf})
    assert "is full" not in (await open_page(browser, "/queues")).text


async def test_a_queue_without_workers_is_named_with_its_backlog(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    await made(cluster, "stuck", "true", queue="unserved")
    async with cluster.client() as client:
        await client.trigger("stuck")
    assert (
        "1 execution in the queue unserved cannot start: no worker serves it."
        in (await open_page(browser, "/queues")).text
    )
    page = await open_page(browser, "/workers?queue=unserved")
    assert "No worker serves the queue unserved. 1 execution waits in it" in page.text
    assert "mainspring worker -q unserved" in page.text


async def test_a_worker_s_page_says_what_it_executes_and_what_went_wrong(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    await made(cluster, "fails", "sh", "-c", "exit 3")
    await made(cluster, "sleeps", "sleep", "60")
    async with cluster.worker(name="w/1", labels={"zone": "a"}), cluster.client() as client:
        failed = await client.trigger("fails")
        await client.wait(failed.execution_id)
        running = await client.trigger("sleeps")

        async def runs() -> bool:
            return (await client.execution(running.execution_id)).state == "running"

        await until_async("its start", runs, within_s=60)
        (worker,) = (await client.workers()).items
        where = f"/workers/{worker.worker_id}"
        page = await open_page(browser, where)
        links = {a.get("href") for a in page.all("a")}
        assert {f"/executions/{failed.execution_id}", f"/executions/{running.execution_id}"} <= links
        assert "failed" in page.text and "zone=a" in page.text
        assert page.active_parts() == []
        listed = await open_page(browser, "/workers?label=zone%3Da")
        assert "w/1" in listed.text
        other = await open_page(browser, "/workers?label=zone%3Db")
        assert "No worker has the label zone=b" in other.text and "mainspring worker --label zone=b" in other.text
        await client.cancel(running.execution_id)
        await client.wait(running.execution_id)
    assert "It has stopped after a clean shutdown" in (await open_page(browser, where)).text


async def test_a_worker_nobody_has_seen_is_not_found(browser: httpx2.AsyncClient) -> None:
    answer = await browser.get("/workers/nobody")
    assert answer.status_code == 404 and "there is no worker" in answer.text.lower()
    assert (await browser.get("/workers?label=zone")).status_code == 422


async def test_the_system_page_has_every_shard_and_runs_the_doctor_when_asked(browser: httpx2.AsyncClient) -> None:
    page = await open_page(browser, "/system")
    assert page.text.count("epoch") >= 64
    assert "All checks passed" not in page.text
    assert "PostgreSQL" in page.text and "history" in page.text
    examined = await open_page(browser, "/system?doctor=1")
    assert "I1 one execution per fire" in examined.text
    assert examined.active_parts() == []


async def test_a_worker_is_drained_and_resumed_and_shows_what_it_runs(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    await made(cluster, "long-one", "sleep", "60", queue="drained")
    async with cluster.worker(name="d1", queues=("drained",)), cluster.client() as client:
        execution = await client.trigger("long-one")

        async def runs() -> bool:
            return (await client.execution(execution.execution_id)).state == "running"

        await until_async("its start", runs, within_s=60)
        listed = await open_page(browser, "/workers")
        assert f"/executions/{execution.execution_id}" in {a.get("href") for a in listed.all("a")}
        worker = next(w for w in (await client.workers()).items if w.name == "d1")
        asked = await open_page(browser, f"/workers/{worker.worker_id}/drain")
        assert "Drain d1" in asked.text
        answer = await browser.post(
            f"/workers/{worker.worker_id}/drain", data={"csrf": asked.csrf, "reason": "patches"}
        )
        assert answer.status_code == 303
        assert {w.name: w.state for w in (await client.workers()).items}["d1"] == "draining"
        await browser.post(f"/workers/{worker.worker_id}/resume", data={"csrf": asked.csrf})
        assert {w.name: w.state for w in (await client.workers()).items}["d1"] in ("idle", "busy")
        await client.cancel(execution.execution_id)


async def test_the_depth_of_the_last_hours_is_drawn_for_queues_that_had_any(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    async with cluster.database.connection() as connection:
        now_ms = int(await database_now_ms(connection))
        for minutes, depth in ((90, 40), (60, 1_234), (30, 7)):
            sample = [(DEFAULT_TENANT, "deep", depth)]
            await write_queue_samples(connection, now_ms=now_ms - minutes * 60_000, depths=sample)
    page = await open_page(browser, "/queues")
    assert "Depth, last 6 hours" in page.text and "deep highest 1,234" in page.text
    assert any((a.get("aria-label") or "").startswith("Depth of deep:") for a in page.all("svg"))
    assert page.active_parts() == []
