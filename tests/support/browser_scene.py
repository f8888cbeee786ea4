"""Sample data for every page, created through the API and executed by a worker."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx2

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.trigger import WebhookSource
from mainspring.manifest import read_workflows
from tests.support.webhook_sender import github

FAILS = 'echo "reading ledger" ; echo "connection to ledger refused" >&2 ; exit 3'
TALKS = (
    "import os, sys, time\n"
    "for n in range(1, 13): print(f'\\033[32mok\\033[0m part {n} of 12 loaded'); sys.stdout.flush()\n"
    "print('a warning', file=sys.stderr)\n"
)
JOBS: tuple[dict[str, Any], ...] = (
    {"name": "billing-invoices", "task": ("python3", "-c", TALKS), "schedule": {"cron": "0 6 * * MON-FRI",
     "timezone": "Europe/Berlin"}, "description": "Writes the invoices of the day.", "finish_by": "2h"},
    {"name": "cleanup-sessions", "task": ("true",), "schedule": {"every": "5m"}},
    {"name": "exchange-rates", "task": ("true",), "schedule": {"cron": "*/15 * * * *"}, "priority": 8},
    {"name": "export-ledger", "task": ("sh", "-c", FAILS), "schedule": {"cron": "30 2 * * *"}},
    {"name": "mail-digest", "task": ("true",), "schedule": {"cron": "0 9 * * *", "timezone": "America/New_York"},
     "paused": True},
    {"name": "reindex-search", "task": ("sleep", "3000"), "concurrency": {"key": "search", "limit": 1},
     "estimated_duration": "20m"},
    {"name": "report", "task": ("echo", "report of {{params.day}}"),
     "params": {"day": {"type": "string", "default": "today"}}, "schedule": {"every": "1h"}},
    {"name": "train-model", "task": ("true",), "labels": {"gpu": "a100"}, "queue": "long"},
)  # fmt: skip
WORKFLOWS = """
kind: Workflow
metadata: {name: etl}
spec:
  defaults: {retries: {max: 0}}
  steps:
    extract: {shell: [echo, extracted]}
    load: {shell: [echo, loaded], needs: [extract]}
    check: {shell: [echo, checked], needs: [extract]}
    publish: {shell: [echo, published], needs: [load, check]}
---
kind: Workflow
metadata: {name: release}
spec:
  defaults: {retries: {max: 0}}
  steps:
    build: {shell: [echo, built]}
    sign: {approval: {expires: 2d, message: "Is the build good?", self_approval: true}, needs: [build]}
    deploy: {shell: [echo, deployed], needs: [sign]}
"""


@dataclass(frozen=True)
class Scene:
    """The created objects, by the first part of the path that shows them, or by the exact route."""

    refs: dict[str, str]

    def path(self, route: str) -> str:
        """Return the path for a route of the UI, such as `/jobs/{ref}/ledger`."""
        known = self.refs.get(route) or self.refs.get(route.split("/")[1], "anything")
        return route.replace("{ref}", known)


async def filled(client: AsyncClient) -> Scene:
    for spec in JOBS:
        task = {"kind": "shell", "argv": list(spec["task"])}
        retries = {"max": 1, "base": "0s"} if spec["name"] == "export-ledger" else {"max": 0}
        await client.create_job({**spec, "task": task, "retries": retries})
    await client.patch_job("billing-invoices", {"timeout": "10m"})
    await client.pause_job("cleanup-sessions", "while the sessions are moved")
    good = await _ran(client, "billing-invoices", times=6)
    await _ran(client, "report", times=4)
    bad = await _ran(client, "export-ledger", times=2)
    lasting = await client.trigger("reindex-search")
    await client.trigger("reindex-search")  # waits for the concurrency limit of its key
    await client.trigger("train-model")  # waits for a worker with its label
    await _surroundings(client)
    run, waiting = await _workflows(client)
    trigger = await _triggers(client)
    (worker, *_) = (await client.workers()).items
    refs = {"jobs": "billing-invoices", "executions": str(good), "failures": str(bad), "workflows": "etl"}
    exact = {"/executions/{ref}/cancel": str(lasting.execution_id), "/api/docs/{ref}": "jobs_trigger"}
    exact |= {f"/runs/{{ref}}/{what}": str(waiting) for what in ("cancel", "decide")}
    return Scene(
        {**refs, "runs": str(run), "workers": str(worker.name), "queues": "short", "triggers": trigger, **exact}
    )


async def _ran(client: AsyncClient, job: str, *, times: int) -> UUID:
    last = None
    for _ in range(times):
        last = await client.trigger(job)
        await client.wait(last.execution_id, timeout_s=60)
    assert last is not None
    return last.execution_id


async def _surroundings(client: AsyncClient) -> None:
    now = datetime.now(UTC)
    await client.put_calendar("holidays", wire.CalendarDays(rules=["25 12 *", "1 1 *"]))
    tomorrow = now + timedelta(days=1)
    await client.add_blackout(
        wire.NewBlackout(start_at=tomorrow, end_at=tomorrow + timedelta(hours=2), queue="long", reason="storage moves")
    )
    await client.add_silence(
        wire.NewSilence(matchers={"job": "report"}, end_at=now + timedelta(hours=4), reason="known issue")
    )
    await client.set_queue("long", {"cap": 4})
    await client.start_backfill(
        "report", wire.BackfillRequest(from_=now - timedelta(hours=6), to=now - timedelta(hours=1))
    )


async def _triggers(client: AsyncClient) -> str:
    """Return a webhook that has received a delivery, and was sent one with a wrong signature."""
    source = WebhookSource(scheme="github", events=["push"])
    made = await client.add_trigger(
        wire.NewTrigger(
            name="release-pushed",
            source=source,
            job="report",
            when='body.ref == "main"',
            params={"day": "{{body.day}}"},
        )
    )
    assert made.secret is not None and made.path is not None
    async with httpx2.AsyncClient(base_url=client.server.url, trust_env=False) as http:
        for number, ref in enumerate(("main", "draft")):
            body = json.dumps({"ref": ref, "day": "monday"}).encode()
            headers = github(made.secret, body, delivery=str(number))
            assert (await http.post(made.path, content=body, headers=headers)).status_code == 200
        await http.post(made.path, content=b"{}")
    return made.name


async def _workflows(client: AsyncClient) -> tuple[UUID, UUID]:
    """Return a run that has ended, and one that waits for approval."""
    for spec in read_workflows(WORKFLOWS):
        await client.apply_workflow(spec)
    await client.start_run("etl")
    run = await client.start_run("etl")
    waiting = await client.start_run("release")
    await client.wait(run.run_id, timeout_s=60)
    return run.run_id, waiting.run_id
