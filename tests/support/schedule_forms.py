"""The schedule form of a job page."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import jobs
from mainspring.views import jobs as job_views
from tests.conftest import Cluster
from tests.support.pages import Page

DAILY = ScheduleSpec(cron="30 2 * * *", timezone="Europe/Berlin")


async def add(cluster: Cluster, name: str, schedule: ScheduleSpec | None = DAILY, **spec: Any) -> UUID:
    new = JobSpec(name=name, task=NoopTask(), schedule=schedule, **spec)
    return await jobs.create(cluster.database, new, tenant=TENANT, by="test")


async def job(cluster: Cluster, name: str) -> wire.Job:
    return await job_views.get(cluster.database, name, tenant=TENANT)


def form_of(page: Page) -> dict[str, str]:
    """The fields that saving sends."""
    names = ("csrf", "version", "expression", "zone", "to")
    return {str(i["name"]): str(i["value"]) for i in page.all("input") if i.get("name") in names and "value" in i}
