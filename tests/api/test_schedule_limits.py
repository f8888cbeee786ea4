"""Bounds on schedules over HTTP: sizes, step budgets, long previews, years far away, and the number of blackouts."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.schedule.blackouts import MAX_BLACKOUTS
from mainspring.intake import calendars
from tests.conftest import Cluster
from tests.support.api_jobs import noop
from tests.support.poison_schedules import ACCEPTED, CALENDARS, REFUSED

PREVIEW = "/api/v1/schedules:preview"


@pytest.fixture(autouse=True)
async def days(cluster: Cluster) -> None:
    for calendar in CALENDARS.values():
        named = wire.CalendarDays(dates=sorted(calendar.dates), rules=list(calendar.rules), mode=calendar.mode)
        await calendars.put(cluster.database, calendar.name, named, tenant=1, by="test")


@pytest.mark.parametrize("name", REFUSED)
async def test_a_poison_schedule_is_refused_with_a_hint(http: httpx2.AsyncClient, name: str) -> None:
    answers = [
        await http.post(PREVIEW, json={"schedule": REFUSED[name]}),
        await http.post("/api/v1/jobs", json={"name": "poison", "task": {"kind": "noop"}, "schedule": REFUSED[name]}),
    ]
    for answer in answers:
        assert answer.status_code == 422, answer.text
        problem = answer.json()
        assert problem["code"] in ("never_fires", "schedule_too_costly", "schedule_too_large")
        assert problem["errors"][0]["pointer"].startswith("/schedule")
        assert problem["errors"][0]["hint"]


@pytest.mark.parametrize("name", ACCEPTED)
async def test_a_preview_of_fifty_fires_works(http: httpx2.AsyncClient, name: str) -> None:
    answer = await http.post(PREVIEW, json={"schedule": ACCEPTED[name], "count": 50})
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["fires"]) == 50


@pytest.mark.parametrize(
    "schedule",
    [
        {"cron": "0 9 * * *", "timezone": "Europe/Berlin"},
        {"cron": "@yearly", "timezone": "America/New_York"},
        {"rrule": "FREQ=MONTHLY;BYDAY=1MO", "timezone": "Europe/Berlin"},
        {"rrule": "FREQ=SECONDLY", "exdates": ["2026-12-24", "2026-12-25", "2026-12-26"]},
        {"every": "1d", "calendar": "weekends", "roll": "next", "timezone": "Europe/Berlin"},
    ],
)
async def test_a_preview_of_five_hundred_fires_works(http: httpx2.AsyncClient, schedule: dict[str, Any]) -> None:
    answer = await http.post(PREVIEW, json={"schedule": schedule, "count": 500})
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["fires"]) == 500


@pytest.mark.parametrize(
    "schedule",
    [{"every": "50y"}, {"every": "1mo", "timezone": "Asia/Tokyo"}, {"cron": "@daily"}, {"rrule": "FREQ=DAILY"}],
)
async def test_the_end_of_time_is_no_internal_error(http: httpx2.AsyncClient, schedule: dict[str, Any]) -> None:
    for after in ("9999-12-31T23:59:59Z", "9990-01-01T00:00:00Z"):
        answer = await http.post(PREVIEW, json={"schedule": schedule, "after": after, "count": 500})
        assert answer.status_code == 200, answer.text


async def test_fires_of_a_schedule_that_became_too_costly(client: AsyncClient, http: httpx2.AsyncClient) -> None:
    await client.put_calendar("edited", wire.CalendarDays(rules=["25 12 *"]))
    job = await client.create_job(noop(schedule={"cron": "0 9 */2 * *", "calendar": "edited"}))
    await client.put_calendar("edited", wire.CalendarDays(rules=["*/2 * *"]))
    answer = await http.get(f"/api/v1/jobs/{job.job_id}/fires")
    assert (answer.status_code, answer.json()["code"]) == (422, "schedule_too_costly")
    found = (await http.get(f"/api/v1/jobs/{job.job_id}")).json()
    assert found["state"] in ("active", "paused") and found["next_fire_at"] is None
    assert (await http.get("/api/v1/jobs")).status_code == 200


async def test_the_number_of_blackouts_is_bounded(http: httpx2.AsyncClient) -> None:
    window = {"start_at": "2090-01-01T00:00:00Z", "end_at": "2090-01-01T01:00:00Z"}
    made = []
    for _ in range(MAX_BLACKOUTS):
        answer = await http.post("/api/v1/blackouts", json=window)
        assert answer.status_code == 201, answer.text
        made.append(answer.json()["blackout_id"])
    refused = await http.post("/api/v1/blackouts", json=window)
    assert (refused.status_code, refused.json()["code"]) == (422, "too_many_blackouts")
    await http.delete(f"/api/v1/blackouts/{made[0]}")
    assert (await http.post("/api/v1/blackouts", json=window)).status_code == 201
