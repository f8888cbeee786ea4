"""The shipped alert rules and dashboard, loaded by a real Prometheus that scrapes a live cluster."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
import yaml

from mainspring.domain.job import JobSpec, NoopTask, ShellTask
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import jobs
from tests.conftest import Cluster
from tests.support.debian_programs import find_program
from tests.support.processes import free_port, until_async
from tools.tree import ROOT

pytestmark = pytest.mark.anyio

DEPLOY = ROOT / "deploy"
NAMES = (
    "jobs_scheduled_total", "jobs_completed_total", "job_duration_seconds", "job_queue_size", "scheduler_is_leader",
    "active_workers", "scheduling_latency_seconds", "worker_utilization", "job_execution_errors_total",
)  # fmt: skip


def queries() -> list[str]:
    dashboard = json.loads((DEPLOY / "grafana" / "mainspring.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DEPLOY / "grafana" / "mainspring.json").read_text())["panels"]
    return found


def exported() -> set[str]:
    """Names of all metrics, as Prometheus has them."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    return set(re.findall(r"^\| `(mainspring_\w+)` \|", page, re.MULTILINE))


def used(text: str) -> set[str]:
    """The metrics that expressions name; histograms without their suffix."""
    names = set(re.findall(r"mainspring_\w+", text))
    return {name if name in exported() else re.sub(r"_(bucket|count|sum)$", "", name) for name in names}


def test_dashboard_and_rules_name_every_metric_and_no_other() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"][0]["rules"]
    assert used(" ".join(queries())) == exported()
    assert used(" ".join(rule["expr"] for rule in rules)) <= exported()


def test_the_dashboard_is_what_grafana_imports() -> None:
    """Ids and places are unique, and each panel uses the variables that the dashboard asks for."""
    dashboard = json.loads((DEPLOY / "grafana" / "mainspring.json").read_text())
    assert dashboard["uid"] == "mainspring" and dashboard["schemaVersion"] >= 36 and "id" not in dashboard
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(dashboard["panels"]))) <= variables
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(numbers) == len(set(numbers))
    cells: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not own & cells and at["x"] + at["w"] <= 24, panel["title"]
        cells |= own
        assert panel["type"] == "row" or panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        letters = [target["refId"] for target in panel.get("targets", ())]
        assert len(letters) == len(set(letters)) and (letters or panel["type"] == "row"), panel["title"]


def test_the_rules_pass_their_unit_tests() -> None:
    promtool = find_program("promtool")
    for words in (("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")):
        done = subprocess.run(
            [promtool, *words], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_says_what_to_do() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"][0]["rules"]
    for rule in rules:
        assert {"summary", "action"} <= rule["annotations"].keys(), rule["alert"]


@contextmanager
def prometheus(folder: Path, target: str, token: str) -> Iterator[str]:
    """A Prometheus that scrapes one server every second, with the shipped rules; yields its address."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(DEPLOY / "prometheus" / "alerts.yml")]
    scrape = config["scrape_configs"][0]
    scrape["authorization"] = {"credentials": token}
    scrape["static_configs"] = [{"targets": [target]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    options = (f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data")
    command = [str(find_program("prometheus")), *options, f"--web.listen-address={address}"]
    with (folder / "prometheus.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as running:
        try:
            yield f"http://{address}"
        finally:
            running.kill()


LIVE = {
    "Shard heartbeat": 64,
    "Jobs by shard": 64,
    "Executions": 1,
    "Outcomes": 2,
    "Dead letters": 1,
    "Workflow runs": 1,
    "Slots by queue": 1,
}
"""Panels by shard, of the whole, of workflows and of dead letters; how many series of a live cluster each shows."""


@pytest.mark.requirement(131, 136)
async def test_every_query_of_the_dashboard_is_answered_by_a_live_cluster(cluster: Cluster, tmp_path: Path) -> None:
    fine = JobSpec(name="fine", task=NoopTask(), overlap="allow", schedule=ScheduleSpec(every=1))
    once = RetryPolicy(max=0)
    bad = JobSpec(
        name="bad", task=ShellTask(argv=("false",)), overlap="allow", schedule=ScheduleSpec(every=1), retries=once
    )
    kept = JobSpec(name="kept", task=NoopTask(), overlap="allow", queue="unserved", schedule=ScheduleSpec(every=1))
    for spec in (fine, bad, kept):
        await jobs.create(cluster.database, spec, tenant=1, by="test")
    target = cluster.url.removeprefix("http://")
    flow = {"name": "flow", "schedule": {"every": "1s"}, "steps": {"first": {"task": {"kind": "noop"}}}}
    async with cluster.worker(), httpx2.AsyncClient(timeout=10) as http, cluster.client() as client:
        await client.apply_workflow(flow)
        with prometheus(tmp_path, target, cluster.token) as url:

            async def asked(expression: str) -> list[Any]:
                expression = expression.replace("$__rate_interval", "20s").replace("$job", ".*")
                answer = (await http.get(f"{url}/api/v1/query?query={quote(expression, safe='')}")).json()
                assert answer["status"] == "success", (expression, answer)
                result: list[Any] = answer["data"]["result"]
                return result

            async def scraped() -> bool:
                try:
                    counted = await asked("sum(increase(mainspring_job_execution_errors_total[20s])) > 0")
                except (httpx2.HTTPError, ValueError):  # Prometheus is starting
                    return False
                return bool(counted)

            await until_async("two scrapes with failures between them", scraped, within_s=40)
            unanswered = [expression for expression in queries() if not await asked(expression)]
            assert unanswered == []
            for panel in panels():
                if least := LIVE.get(panel["title"]):
                    # Without the alternative that stands for "none so far".
                    live = [
                        series
                        for target in panel["targets"]
                        for series in await asked(target["expr"].removesuffix(" or vector(0)"))
                    ]
                    assert len(live) >= least, panel["title"]
                    assert any(float(series["value"][1]) > 0 for series in live), panel["title"]
            for name in NAMES:
                assert await asked(f'{{__name__=~"mainspring_{name}(_count)?"}}'), name
            assert len(await asked('{__name__=~"mainspring_.*", __name__!~".*_bucket"}')) < 400
            rules = (await http.get(f"{url}/api/v1/rules")).json()["data"]["groups"][0]["rules"]
            assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
            assert not [r["name"] for r in rules if r["state"] == "firing"]
