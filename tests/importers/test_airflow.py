"""DAG files of many shapes become workflows with the fires that Airflow would have."""

from __future__ import annotations

import pytest

from mainspring.domain.job import NoopTask, ShellTask
from mainspring.domain.schedule.spec import ScheduleSpec
from mainspring.domain.task import PythonTask
from mainspring.domain.workflow.spec import WorkflowSpec
from tests.support.imports import SAMPLES, finding, found, proved, read, sample

DAGS = sorted((SAMPLES / "dags").glob("*.py"))
ZONES = ("UTC", "Europe/Berlin", "America/New_York")


def workflow(file: str, name: str | None = None) -> WorkflowSpec:
    plan = read("airflow", sample(SAMPLES / "dags" / file))
    spec = proved(plan)[name or file.removesuffix(".py")].entry.spec
    assert isinstance(spec, WorkflowSpec)
    return spec


def test_there_are_ten_dag_files() -> None:
    assert len(DAGS) == 10


@pytest.mark.parametrize("path", DAGS, ids=lambda path: path.name)
def test_fires_are_equal(path) -> None:
    plan = read("airflow", sample(path))
    entries = proved(plan)
    assert found(plan, "unsupported") == []
    assert len(entries) == (2 if path.name == "two_dags.py" else 1)
    for entry in entries.values():
        if entry.entry.rule is not None:
            assert entry.comparison is not None and entry.comparison.is_equal and entry.comparison.fires >= 1000


def test_steps_and_needs() -> None:
    spec = workflow("etl_bash.py")
    assert list(spec.steps) == ["extract", "transform", "load"]
    assert [spec.steps[name].needs for name in spec.steps] == [(), ("extract",), ("transform",)]
    assert spec.steps["extract"].task == ShellTask(argv=("/bin/bash", "-c", "extract.sh --all"))
    retries = spec.steps["extract"].retries
    assert retries is not None and (retries.max, retries.base, retries.factor) == (2, "300s", 1.0)
    assert spec.steps["transform"].retries is not None and spec.steps["transform"].retries.max == 3
    assert spec.steps["load"].timeout == "3600s"
    assert (spec.schedule, spec.misfire.policy) == (ScheduleSpec(cron="0 2 * * *"), "latest")


def test_functions_and_rules() -> None:
    spec = workflow("python_fan_out.py")
    assert spec.steps["report_eu"].task == PythonTask(function="shop.reports:build_report", args={"region": "eu"})
    assert spec.steps["cleanup"].task == PythonTask(function="python_fan_out:cleanup")
    assert spec.steps["start"].task == NoopTask()
    assert spec.steps["send"].needs == ("report_eu", "report_us")
    assert spec.steps["cleanup"].rule == "all_done"
    assert spec.overlap == "queue_all"
    assert spec.schedule == ScheduleSpec(
        cron="30 6 * * 1-5", timezone="Europe/Berlin", gap="next_valid", overlap_hour="second"
    )


def test_chain() -> None:
    spec = workflow("chain_and_rules.py")
    needs = {name: step.needs for name, step in spec.steps.items()}
    assert needs == {
        "begin": (), "a1": ("begin",), "a2": ("begin",), "b1": ("a1",), "b2": ("a2",), "finish": ("b1", "b2"),
    }  # fmt: skip
    assert spec.steps["finish"].rule == "none_failed"
    assert spec.misfire.policy == "latest"


def test_upstream_and_downstream() -> None:
    assert workflow("decorated.py", "hourly_sync").steps["push"].needs == ("pull",)
    assert workflow("on_demand.py", "on_demand_migration").steps["run"].needs == ("check",)
    assert workflow("two_dags.py", "monthly_totals").steps["archive"].needs == ("totals",)
    either = workflow("either_day.py")
    assert (either.steps["mail"].needs, either.steps["bill"].needs) == (("bill",), ("gate",))
    assert either.paused and either.steps["bill"].timeout == "7200s"


def test_an_interval_keeps_its_phase() -> None:
    assert workflow("interval_delta.py").schedule == ScheduleSpec(every=21_600, start_at="2025-01-01T09:00:00Z")


def test_what_cannot_be_read_is_named() -> None:
    plan = read("airflow", sample(SAMPLES / "dags_refused" / "refused.py"))
    assert proved(plan) == {}
    assert {entry: line for line, entry in found(plan, "unsupported")} == {
        "loop": 11,
        "provider": 14,
        "templated": 17,
        "on_dataset": 19,
        "unnamed_schedule": 22,
        "gap": 25,
        "taskflow": 39,
    }
    assert all(one.hint for one in plan.unsupported)
    assert "PostgresOperator" in finding(plan, "no counterpart").message


def test_differences_can_be_accepted() -> None:
    plan = read("airflow", sample(SAMPLES / "dags_refused" / "refused.py"))
    assert list(proved(plan, accept_differences=True)) == ["gap"]
    assert finding(plan, "2027-03-28T01:00:00Z only in mainspring").severity == "dropped"


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("cron", ["30 * * * *", "*/15 * * * *", "0 2 * * *", "0 */4 * * *", "15 1 * * 0", "@weekly"])
def test_schedules_over_clock_changes(cron: str, zone: str) -> None:
    text = f"""
import pendulum
with DAG("a", schedule="{cron}", start_date=pendulum.datetime(2024, 1, 1, tz="{zone}"), catchup=False):
    BashOperator(task_id="x", bash_command="x")
"""
    plan = read("airflow", text)
    (entry,) = proved(plan).values()
    assert entry.comparison is not None and entry.comparison.changes == (0 if zone == "UTC" else 4)


def test_a_future_start_date() -> None:
    text = """
with DAG("a", schedule="0 6 * * *", start_date=datetime(2030, 1, 1)):
    BashOperator(task_id="x", bash_command="x")
"""
    (entry,) = proved(read("airflow", text)).values()
    # The first interval ends on the second day.
    assert entry.comparison is not None and entry.comparison.next_ms[0] == 1893564000000
