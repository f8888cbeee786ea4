"""Times of jobs: the last run, and fires on the clocks of the reader, the schedule and UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from mainspring import wire
from mainspring.cli.tables.jobs import JOBS, job_details, last_run
from mainspring.display.times import both, now
from tests.support.invoke import Invoke
from tests.support.scripted_server import Reply, Scripted, execution, fires, job

BERLIN = {"name": "hello", "task": {"kind": "noop"}, "schedule": {"cron": "0 2 * * *", "timezone": "Europe/Berlin"}}
AT = datetime(2026, 12, 1, 1, tzinfo=UTC)


def last(state: str, minutes_ago: float | None, **more: Any) -> dict[str, Any]:
    ended = None if minutes_ago is None else now() - timedelta(minutes=minutes_ago)
    values = {"execution_id": str(execution().execution_id), "state": state, "fire_at": ended or now()}
    return {**values, "finished_at": ended, "duration_ms": 6, **more}


def cell(title: str, found: wire.Job) -> str:
    (column,) = [column for column in JOBS.columns if column.title == title]
    return column.text(found)


def test_the_last_run_is_the_latest_that_started() -> None:
    found = job(last=[last("skipped", 1), last("failed", 5), last("succeeded", 10), last("waiting", None)])
    ran = last_run(found)
    assert ran is not None
    assert ran.state == "failed"
    assert cell("LAST RUN", found) == "5 min ago"
    assert re.search(r"^last run +✖ failed  ", job_details(found), re.MULTILINE)
    assert ", took 6 ms" in job_details(found)


def test_one_that_runs_is_now_and_one_that_never_ran_is_a_dash() -> None:
    assert cell("LAST RUN", job(last=[last("running", None), last("succeeded", 10)])) == "now"
    assert cell("LAST RUN", job(last=[last("skipped", 1), last("cancelled", 1, duration_ms=None)])) == "–"
    assert "last run" not in job_details(job())


@pytest.mark.usefixtures("local_zone")
def test_a_fire_is_shown_on_every_clock_that_differs() -> None:
    assert both([AT], ZoneInfo("Europe/Berlin")) == [
        ["2026-12-01 10:00:00 JST", "2026-12-01 02:00:00 CET", "2026-12-01 01:00:00 UTC"]
    ]
    assert both([AT], ZoneInfo("Asia/Tokyo")) == both([AT]) == [["2026-12-01 10:00:00 JST", "2026-12-01 01:00:00 UTC"]]
    assert both([AT], ZoneInfo("UTC")) == both([AT])
    assert both([]) == []


def test_a_reader_in_utc_sees_the_zone_of_the_job(
    server: Scripted, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    found = job(BERLIN, next_fire_at=AT)
    in_berlin = fires().__class__(description="at 02:00", timezone="Europe/Berlin", fires=[AT], notes=[])
    server.on("GET", "/api/v1/jobs/hello", Reply(found))
    server.on("GET", "/api/v1/jobs/hello/fires", Reply(in_berlin))
    line = "2026-12-01 02:00:00 CET  2026-12-01 01:00:00 UTC"
    assert line in invoke("jobs", "get", "hello").stdout
    assert invoke("jobs", "next", "hello").stdout == f"{line}\n"
    assert (
        invoke("cron", "next", "0 2 * * *", "--tz", "Europe/Berlin", "--after", "2026-11-30T12:00Z", "-n", "1").stdout
        == f"{line}\n"
    )
    monkeypatch.undo()
    time.tzset()


def test_the_origin_of_a_declared_job_is_shown() -> None:
    declared = {"function": "shop:pay", "version": 1, "edited": True}
    text = job_details(job(declared=declared))
    assert "declared in code: shop:pay (edited since; the next load of the code undoes the edit)" in text
    assert "origin" not in job_details(job())
