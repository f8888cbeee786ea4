"""Job definitions that cover every field of the form."""

from __future__ import annotations

from mainspring.domain.container import ContainerTask
from mainspring.domain.job import JobSpec, Misfire, NoopTask, Notify, ShellTask
from mainspring.domain.limit import Concurrency, Rate
from mainspring.domain.params import Param
from mainspring.domain.plugin import PluginTask
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.sandbox import Sandbox
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.domain.task import HttpTask, PythonTask

SPECS = [
    JobSpec(name="plain", task=NoopTask()),
    JobSpec(
        name="shell",
        task=ShellTask(argv=("sh", "-c", "echo 'a b'\n\ttwo"), env={"A": "1", "LINES": "x\ny"}, cwd="/srv"),
        schedule=ScheduleSpec(cron="0 2 * * *", timezone="Europe/Berlin", calendar="de", roll="next", jitter="30s"),
        description="what it is for",
        metadata={"team": {"name": "finance"}},
        params={"region": Param("string", "eu", "where", ("eu", "us")), "n": Param("integer"), "any": Param()},
        notify=(Notify(("failed", "late"), ("ops", "pager"), by="5m"), Notify(("slow",), ("ops",), factor=3)),
    ),
    JobSpec(name="script", task=ShellTask(argv=("a | b  c",), shell=True), schedule=ScheduleSpec(every="10m")),
    JobSpec(
        name="http",
        task=HttpTask(
            url="https://example.org/x", method="POST", headers={"Accept": "a: b"}, body={"day": "{{fire_at}}"},
            expect=(204, "2xx"), timeout=5, follow_redirects=2, max_bytes=10,
        ),
        retries=RetryPolicy(max=5, base="10s", on=("failed",), only_exit_codes=(75,), never_errors=("ValueError",)),
        timeout=90,
        delivery="at_most_once",
    ),
    JobSpec(name="body", task=HttpTask(url="https://example.org", method="PUT", body="plain text")),
    JobSpec(name="py", task=PythonTask(function="app:f", args={"n": [1, {"a": None}]}), sandbox=Sandbox(memory="1Gi")),
    JobSpec(
        name="container",
        task=ContainerTask(image="b", command=("sh", "-c"), args=("echo 'x'",), env={"A": ""}, cpu=0.5, pull="never"),
        labels={"zone": "eu"},
        resources={"cpu": 2, "memory": "4Gi"},
        exclusive=True,
        concurrency=Concurrency(key="k-{{params.region}}", limit=3),
        rate=Rate(limit=10, per="1m", burst=2),
        misfire=Misfire("all", "6h", 5),
        overlap="queue_all",
        start_by="10m",
        finish_by=None,
        max_gap="2d",
        pause_after_failures=3,
        estimated_duration="20m",
        queue="long",
        priority=0,
    ),
    JobSpec(name="plugin", task=PluginTask("sql", {"statement": "select", "dry": True, "more": {"a": 1}, "x": 2})),
    JobSpec(name="free", task=PluginTask("free", {"x": [1]})),
    JobSpec(name="several", task=NoopTask(), schedule=[ScheduleSpec(cron="@daily"), ScheduleSpec(every="3h")]),
    JobSpec(name="rule", task=NoopTask(), schedule=ScheduleSpec(rrule="FREQ=DAILY", dtstart="2027-01-01T00:00:00")),
    JobSpec(name="odd", task=NoopTask(), schedule=ScheduleSpec(cron="@daily", exclude=("2027-01-01",), gap="skip")),
]  # fmt: skip
