"""Previews of schedules with dates, and from instants in the past."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx2
import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import Invalid
from mainspring.domain.schedule.schedule import ScheduleSpec
from tests.support.api_jobs import noop

pytestmark = pytest.mark.anyio

ENDED = ScheduleSpec(cron="0 2 * * *", end_at="2020-01-03")


async def test_a_schedule_that_has_ended_is_previewed_from_before_its_end(client: AsyncClient) -> None:
    early = datetime(2020, 1, 1, 12, tzinfo=UTC)
    found = await client.preview(wire.PreviewRequest(schedule=ENDED, after=early))
    assert [fire.day for fire in found.fires] == [2, 3]
    with pytest.raises(Invalid, match="in the past"):
        await client.preview(wire.PreviewRequest(schedule=ENDED))


async def test_a_job_cannot_be_saved_with_it(client: AsyncClient) -> None:
    with pytest.raises(Invalid, match="in the past"):
        await client.create_job(noop(schedule={"cron": "0 2 * * *", "end_at": "2020-01-03"}))


async def test_dates_are_accepted_where_a_job_is_saved(client: AsyncClient, http: httpx2.AsyncClient) -> None:
    schedule = {"cron": "0 2 * * *", "timezone": "Europe/Berlin", "start_at": "2090-12-01", "end_at": "2090-12-02"}
    job = await client.create_job(noop(schedule=schedule))
    fires = (await http.get(f"/api/v1/jobs/{job.name}/fires")).json()["fires"]
    assert fires == ["2090-12-01T01:00:00Z", "2090-12-02T01:00:00Z"]
