from __future__ import annotations

import shlex

import pytest

from mainspring.cli.add import add as command
from mainspring.cli.spec import changed
from mainspring.codec import decode, encode
from mainspring.domain.job import JobSpec, Misfire, NoopTask, Notify, ShellTask
from mainspring.domain.limit import Concurrency, Rate
from mainspring.domain.params import Param
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.web.forms import command_line

TASK = ShellTask(argv=("echo", "two words", "$HOME"))
SPECS = [
    JobSpec(name="plain", task=TASK),
    JobSpec(name="often", task=TASK, schedule=ScheduleSpec(every="5s")),
    JobSpec(
        name="much",
        task=ShellTask(argv=("a",), env={"A": "b c"}, cwd="/srv"),
        description="it's so",
        schedule=ScheduleSpec(cron="0 2 * * *", timezone="Europe/Berlin", calendar="de", roll="next", jitter="1m"),
        retries=RetryPolicy(max=1, base="1s", on=("failed",), never_exit_codes=(2, 3)),
        misfire=Misfire("all"),
        labels={"zone": "eu"},
        resources={"memory": "4Gi"},
        exclusive=True,
        concurrency=Concurrency("k", 2),
        rate=Rate(10, "1m"),
        notify=(Notify(("failed", "slow"), ("ops", "pager")),),
        queue="long",
        priority=9,
        timeout="2h",
        overlap="allow",
        delivery="at_least_once",
        max_gap="1d",
        estimated_duration="20m",
    ),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_the_line_adds_the_same_job(spec: JobSpec) -> None:
    line = command_line.add(spec)
    assert line is not None
    words = shlex.split(line)
    assert words[:2] == ["mainspring", "add"]
    flags = command.make_context("add", words[2:]).params
    said = changed({"name": flags.pop("name")}, flags, flags.pop("command"))
    assert decode(encode(said), JobSpec) == spec


@pytest.mark.parametrize(
    "spec",
    [
        JobSpec(name="noop", task=NoopTask()),
        JobSpec(name="script", task=ShellTask(argv=("a | b",), shell=True)),
        JobSpec(name="several", task=TASK, schedule=[ScheduleSpec(cron="@daily"), ScheduleSpec(every="1h")]),
        JobSpec(name="gap", task=TASK, schedule=ScheduleSpec(cron="@daily", gap="skip")),
        JobSpec(name="params", task=TASK, params={"n": Param("integer")}),
        JobSpec(name="burst", task=TASK, rate=Rate(10, burst=3)),
        JobSpec(name="late", task=TASK, notify=(Notify(("late",), ("ops",), by="9m"),)),
        JobSpec(name="window", task=TASK, misfire=Misfire("all", "1h")),
    ],
    ids=lambda spec: spec.name,
)
def test_what_has_no_flags_is_a_body_for_the_api(spec: JobSpec) -> None:
    assert command_line.add(spec) is None
    assert decode(command_line.body(spec).encode(), JobSpec) == spec


def test_a_run_with_its_params() -> None:
    line = command_line.run("report", {"region": "e u", "n": 3}, at="+10m", key="k")
    assert line == "mainspring run report -p 'region=e u' -p n=3 --at +10m --key k"
