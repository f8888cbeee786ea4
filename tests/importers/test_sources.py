"""Sources other than crontabs: what is carried over, what is refused, and equal fires."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest

from mainspring.domain.container import ContainerTask
from mainspring.domain.job import JobSpec, ShellTask
from mainspring.domain.schedule.spec import ScheduleSpec
from mainspring.domain.task import HttpTask, PythonTask
from mainspring.importers.airflow_schedule import read_rule as read_airflow_rule
from mainspring.importers.apscheduler_cron import read_rule as read_apscheduler_rule
from mainspring.importers.celery import read_rule as read_celery_rule
from mainspring.importers.on_calendar import read_rule as read_on_calendar
from mainspring.importers.plan import Plan, SourceFile
from mainspring.importers.python_source import Call
from mainspring.importers.rules.elapsed import SourceRule
from tests.support.imports import SAMPLES, finding, found, proved, read, sample
from tools.tree import ROOT


def recorded(source: str) -> list[dict[str, Any]]:
    """Fires that the source itself computed."""
    text = (ROOT / "tests" / "importers" / "recorded" / f"{source}_fires.json").read_text()
    return list(json.loads(text))


def fires_as_recorded(rule: SourceRule, case: dict[str, Any]) -> list[str]:
    """The fires of a rule in the form and number of a recorded case."""
    after = datetime.fromisoformat(f"{case['after']}+00:00")
    fires = islice(rule.fires(round(after.timestamp() * 1000)), len(case["fires"]))
    return [datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S") for ms in fires]


SYSTEMD_FIRES = recorded("systemd")


def jobs(plan: Plan) -> dict[str, JobSpec]:
    specs = {name: one.entry.spec for name, one in proved(plan).items()}
    return {name: spec for name, spec in specs.items() if isinstance(spec, JobSpec)}


def folder(source: str, name: str, **options: object) -> Plan:
    return read(source, *(sample(path) for path in sorted((SAMPLES / name).iterdir())), **options)


def test_kubernetes() -> None:
    plan = folder("k8s", "k8s")
    specs = jobs(plan)
    backup = specs["db-backup"]
    assert backup.task == ContainerTask(
        image="registry.example.org/backup:1.4",
        command=("/bin/backup",),
        args=("--all", "--compress"),
        env={"TARGET": "s3://bucket/db", "RETRIES": "3"},
        workdir="/srv",
        pull="always",
        network=True,
    )
    assert backup.schedule == ScheduleSpec(cron="30 2 * * *", timezone="Europe/Berlin", gap="skip", overlap_hour="both")
    assert (backup.overlap, backup.start_by, backup.timeout, backup.retries.max) == ("skip", "300s", "1800s", 2)
    assert backup.resources == {"cpu": 0.5, "memory": "256Mi"}
    # Unlike cron, the controller fires on either day when a star has a step.
    assert specs["every-two-days-or-monday"].schedule == ScheduleSpec(cron="0 6 1-31/2 * 1")
    assert specs["every-two-days-or-monday"].paused
    assert specs["every-two-days-or-monday"].overlap == "cancel_running"
    assert set(specs) == {"db-backup", "every-two-days-or-monday", "hourly"}
    assert found(plan, "unsupported") == [(83, "two-containers")]
    assert (finding(plan, "PGPASSWORD").line, finding(plan, "PGPASSWORD").severity) == (38, "dropped")
    assert "secret" in finding(plan, "all of its variables").message
    assert finding(plan, "serviceAccountName").line == 25


def test_celery() -> None:
    plan = folder("celery", "celery")
    specs = jobs(plan)
    assert specs["add-every-30-seconds"].schedule == ScheduleSpec(every=30)
    assert specs["add-every-30-seconds"].task == PythonTask(function="shop.tasks:add", args={"x": 16, "y": 16})
    assert specs["clean-up"].schedule == ScheduleSpec(every=3600)
    assert specs["every-quarter"].schedule == ScheduleSpec(cron="0-45/15 0-23 * * *", timezone="Europe/Berlin")
    assert "2027-03-28T01:00:00Z only in mainspring" in finding(plan, "fires differ").message
    assert specs["thirteenth-friday"].schedule == ScheduleSpec(
        cron="0 0 13 * 5", timezone="Europe/Berlin", day_and=True
    )
    assert specs["hourly"].schedule == ScheduleSpec(cron="0 * * * *")
    assert specs["text"].paused
    assert len(specs) == 10
    assert found(plan, "unsupported") == [(25, "at-sunset"), (26, "with-args"), (16, "nightly")]
    assert "sun" in finding(plan, "solar").hint


def test_systemd() -> None:
    plan = folder("systemd", "systemd")
    specs = jobs(plan)
    backup = specs["backup"]
    assert backup.task == ShellTask(
        argv=("/usr/bin/backup", "--target", "/mnt/backup", "--level", "9", "a b"),
        env={"TARGET": "/mnt/backup", "NOTE": "two words", "LEVEL": "9"},
        cwd="/srv/backup",
    )
    assert backup.schedule == [
        ScheduleSpec(cron="30 2 * * 1-5", timezone="Europe/Berlin", gap="skip", jitter="600000ms"),
        ScheduleSpec(cron="0 4 * * 0,6", jitter="600000ms"),
    ]
    assert (backup.misfire.policy, backup.overlap, backup.timeout) == ("latest", "skip", "7200s")
    assert backup.description == "Back up the shop"
    assert specs["poll"].schedule == ScheduleSpec(every=5400)
    assert specs["poll"].task == ShellTask(argv=("/bin/sh", "-c", "poll > /tmp/poll.$$"))
    assert specs["last-day"].schedule == ScheduleSpec(cron="30 23 L * *")
    assert specs["last-day"].task == ShellTask(argv=("/usr/bin/report --month && /usr/bin/report --send",), shell=True)
    assert {entry for _, entry in found(plan, "unsupported")} == {"idle", "orphan"}
    assert finding(plan, "EnvironmentFile").line == 10
    assert "the user backup" in finding(plan, "user").message


@pytest.mark.parametrize("case", SYSTEMD_FIRES, ids=lambda case: f"{case['on_calendar']} after {case['after']}")
def test_on_calendar_fires_as_systemd_says(case: dict[str, Any]) -> None:
    """Recorded from `systemd-analyze calendar --iterations 60` of systemd 252."""
    assert fires_as_recorded(read_on_calendar(case["on_calendar"], "UTC"), case) == case["fires"]


@pytest.mark.parametrize(
    "case", recorded("celery"), ids=lambda case: f"{case['crontab']} {case['zone']} {case['after']}"
)
def test_crontabs_of_celery_fire_as_celery_does(case: dict[str, Any]) -> None:
    """Recorded from Celery 5.7: `is_due` asked every minute."""
    rule = read_celery_rule(Call("crontab", (), case["crontab"]), case["zone"])
    assert fires_as_recorded(rule, case) == case["fires"]


@pytest.mark.parametrize(
    "case", recorded("apscheduler"), ids=lambda case: f"{case['fields']} {case['zone']} {case['after']}"
)
def test_cron_triggers_fire_as_apscheduler_does(case: dict[str, Any]) -> None:
    """Recorded from APScheduler 3.11."""
    assert fires_as_recorded(read_apscheduler_rule(case["fields"], case["zone"]), case) == case["fires"]


@pytest.mark.parametrize("case", recorded("airflow"), ids=lambda case: f"{case['cron']} {case['zone']} {case['after']}")
def test_crons_of_dags_fire_as_airflow_does(case: dict[str, Any]) -> None:
    """Recorded with croniter 6.2 and pendulum 3.3, which Airflow uses, by the rule of its timetables."""
    assert fires_as_recorded(read_airflow_rule(case["cron"], case["zone"]), case) == case["fires"]


@pytest.mark.parametrize("text", [case["on_calendar"] for case in SYSTEMD_FIRES[::3]])
def test_on_calendar_is_carried_over(text: str) -> None:
    timer = f"[Timer]\nOnCalendar={text}\nUnit=x.service\n"
    files = [("x.timer", timer), ("x.service", "[Service]\nExecStart=/bin/x\n")]
    plan = read("systemd", *(SourceFile(name, content) for name, content in files))
    assert set(proved(plan)) == {"x"}, plan.findings


def test_apscheduler() -> None:
    plan = folder("apscheduler", "apscheduler")
    specs = jobs(plan)
    zone = "America/New_York"
    assert specs["office"].schedule == ScheduleSpec(cron="0-40/20 9-17 * * 1-5", timezone=zone, overlap_hour="both")
    assert specs["office"].task == PythonTask(function="jobs:office")
    assert specs["five"].schedule == ScheduleSpec(every=300)
    assert specs["report"].task == PythonTask(function="shop.jobs:report", args={"full": True})
    assert specs["report"].overlap == "allow"
    assert specs["tick"].schedule == ScheduleSpec(every=90, start_at="2026-01-01T05:00:00Z")
    assert specs["later"].schedule == ScheduleSpec(at="2031-05-01T16:30:00Z")
    # Monday is 0, also in from_crontab.
    assert specs["weekly"].schedule == ScheduleSpec(cron="0 4 * * 1")
    assert specs["month-end"].schedule == ScheduleSpec(cron="0 23 L * *", timezone=zone, overlap_hour="both")
    assert specs["patch-day"].schedule == ScheduleSpec(
        cron="0 6 * * 2#2", timezone="Europe/Berlin", overlap_hour="both"
    )
    assert set(specs) >= {"two-hours", "a", "b"}
    assert {entry for _, entry in found(plan, "unsupported")} >= {"by-week", "in-the-gap"}
    assert "only in mainspring" in finding(plan, "fires differ").message


def test_quartz() -> None:
    plan = folder("quartz", "quartz")
    specs = jobs(plan)
    crons = {name: spec.schedule.cron for name, spec in specs.items() if isinstance(spec.schedule, ScheduleSpec)}
    assert crons["weekdays"] == "15 10 * * 1-5"
    assert crons["last-friday"] == "15 10 * * 5#L"
    assert crons["third-friday"] == "15 10 * * 5#3"
    assert crons["before-last"] == "15 10 L-2 * *"
    assert crons["nearest"] == "0 9 15W * *"
    assert crons["last-weekday"] == "0 9 LW * *"
    assert crons["seconds"] == "*/10 * * * * *"
    assert specs["years"].schedule == ScheduleSpec(
        cron="0 0 1 1 *", start_at="2028-01-01T00:00:00", end_at="2030-12-31T23:59:59"
    )
    assert specs["no-command"].paused and not specs["noon"].paused
    assert specs["invoices"].schedule == ScheduleSpec(
        cron="30 1 * * *", timezone="America/New_York", gap="skip", overlap_hour="second"
    )
    assert {entry for _, entry in found(plan, "unsupported")} == {"both-days", "odd-years", "simple"}
    assert "org.example.InvoiceJob" in finding(plan, "the class").message


def test_eventbridge() -> None:
    plan = folder("eventbridge", "eventbridge")
    specs = jobs(plan)
    assert specs["nightly"].schedule == ScheduleSpec(
        cron="30 2 * * *", timezone="Europe/Berlin", gap="skip", jitter="15m"
    )
    task = specs["nightly"].task
    assert (
        isinstance(task, ShellTask) and task.argv[:3] == ("aws", "lambda", "invoke") and '{"full": true}' in task.argv
    )
    assert specs["nightly"].retries.max == 5
    assert specs["often"].schedule == ScheduleSpec(every=300) and specs["often"].paused
    assert specs["once"].schedule == ScheduleSpec(at="2031-01-31T00:00:00Z")
    assert specs["weekdays"].schedule == ScheduleSpec(cron="*/15 8-17 * * 1-5")
    assert found(plan, "unsupported") == [(35, "task")]


def test_cloud_scheduler() -> None:
    plan = folder("cloud-scheduler", "cloud_scheduler")
    specs = jobs(plan)
    assert specs["call"].task == HttpTask(
        url="https://shop.example.org/tasks/nightly",
        method="POST",
        headers={"Content-Type": "application/json"},
        body='{"full": true}',
    )
    assert (specs["call"].timeout, specs["call"].retries.max) == ("320s", 3)
    assert specs["publish"].paused
    assert found(plan, "unsupported") == [(28, "old")]
    assert finding(plan, "oidcToken").line == 14


def test_a_problem_of_a_service_names_its_file() -> None:
    timer = SourceFile("a.timer", "[Timer]\nOnCalendar=daily\n")
    plan = read("systemd", timer, SourceFile("a.service", "# of a host\n[Service]\nExecStart=/bin/x %H\n"))
    assert proved(plan) == {}
    assert str(finding(plan, "%H")).startswith("a.service:3: a: ")


def test_the_zone_in_a_schedule_of_kubernetes_counts_as_named() -> None:
    containers = "jobTemplate: {spec: {template: {spec: {containers: [{name: a, image: b}]}}}}"
    text = f"kind: CronJob\nmetadata: {{name: x}}\nspec: {{schedule: 'CRON_TZ=Asia/Tokyo 0 9 * * 1-5', {containers}}}\n"
    plan = read("k8s", text)
    assert jobs(plan)["x"].schedule == ScheduleSpec(
        cron="0 9 * * 1-5", timezone="Asia/Tokyo", gap="skip", overlap_hour="both"
    )
    assert plan.findings == []


def test_periodic_tasks_that_are_added_by_calls() -> None:
    text = """
from shop.tasks import report

@app.on_after_configure.connect
def setup(sender, **kwargs):
    sender.add_periodic_task(10.0, ping.s(a="hello"), name="ping often")
    sender.add_periodic_task(crontab(hour=7, minute=0), report.s())
"""
    specs = jobs(read("celery", text))
    assert specs["ping-often"].task == PythonTask(function="source:ping", args={"a": "hello"})
    assert specs["shop.tasks-report"].task == PythonTask(function="shop.tasks:report")
    assert specs["shop.tasks-report"].schedule == ScheduleSpec(cron="0 7 * * *")
