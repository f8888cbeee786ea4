"""Spans from submit to settle, into the user's function, received over OTLP by a collector in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from mainspring.domain.trace import SpanRef, attempt_span, read_traceparent
from tests.conftest import started
from tests.support.http_receiver import Received, receiving, reply
from tests.support.processes import until_async

pytestmark = pytest.mark.anyio

CALLER = SpanRef(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7)
MODULE = """
import mainspring as ms
from opentelemetry import trace

@ms.job
def seen() -> dict:
    current = trace.get_current_span().get_span_context()
    return {"trace": f"{current.trace_id:032x}", "span": f"{current.span_id:016x}", "given": ms.context().traceparent}
"""


@dataclass
class Collector:
    """A receiver of spans in a process of its own."""

    folder: Path
    url: str = ""
    read: list[dict[str, Any]] = field(default_factory=list)

    def spans(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "spans").read_text().splitlines()[1:]]

    def named(self, name: str) -> list[dict[str, Any]]:
        return [span for span in self.spans() if span["name"] == name]


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    found = Collector(tmp_path)
    with (tmp_path / "spans").open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", "tests.support.otlp_receiver"], stdout=out)
    try:
        while "\n" not in (text := (tmp_path / "spans").read_text()):
            assert process.poll() is None
        found.url = f"http://127.0.0.1:{text.splitlines()[0]}"
        yield found
    finally:
        process.kill()
        process.wait()


async def test_a_submission_its_attempts_and_results_are_linked_across_the_queue(
    collector: Collector, database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "traced_functions.py").write_text(MODULE)
    shell = {"kind": "shell", "argv": ["sh", "-c", "echo $TRACEPARENT; exit $((MAINSPRING_ATTEMPT == 1))"]}
    module = str(tmp_path / "traced_functions.py")
    async with (
        started(database_url, otlp_endpoint=collector.url) as cluster,
        cluster.client() as client,
        receiving(lambda _: reply(body=b"{}", content_type="application/json")) as web,
        cluster.worker(otlp_endpoint=collector.url, modules=(module,), allow_net=["127.0.0.0/8"]),
    ):
        await client.create_job({"name": "shell", "task": shell, "retries": {"max": 1, "base": 0}})
        await client.create_job({"name": "http", "task": {"kind": "http", "url": web.url()}})
        call = {"kind": "python", "function": "traced_functions:seen"}
        await client.create_job({"name": "python", "task": call})
        headers = {"Authorization": f"Bearer {cluster.token}", "traceparent": str(CALLER)}
        made: dict[str, UUID] = {}
        async with httpx2.AsyncClient(timeout=30) as http:
            for name in ("shell", "http", "python"):
                url = f"{cluster.url}/api/v1/jobs/{name}/trigger"
                made[name] = UUID((await http.post(url, headers=headers, json={})).json()["execution_id"])
        ended = {name: await client.wait(execution, timeout_s=60) for name, execution in made.items()}
        assert {e.state for e in ended.values()} == {"succeeded"}, {n: e.error for n, e in ended.items()}
        span = attempt_span(made["python"], 1)
        result = ended["python"].result
        assert result == {"trace": f"{span.trace_id:032x}", "span": f"{span.span_id:016x}", "given": str(span)}
        output = str(await client.logs(made["shell"]))
        assert str(attempt_span(made["shell"], 1)) in output and str(attempt_span(made["shell"], 2)) in output
        received: list[Received] = web.got
        assert received[0].headers["traceparent"] == str(attempt_span(made["http"], 1))

    async def complete() -> bool:
        return len(collector.named("settle")) >= 4 and len(collector.named("attempt shell")) == 2

    await until_async("all spans at the collector", complete, within_s=30)
    first, second = (attempt_span(made["shell"], attempt) for attempt in (1, 2))
    submits = collector.named("submit")
    assert {s["trace"] for s in submits} == {f"{CALLER.trace_id:032x}"}
    assert {s["parent"] for s in submits} == {f"{CALLER.span_id:016x}"}
    assert [f"{first.trace_id:032x}-{first.span_id:016x}"] in [s["links"] for s in submits]
    failed, retried = sorted(collector.named("attempt shell"), key=lambda s: s["attributes"]["mainspring.attempt"])
    assert (failed["trace"], failed["span"], failed["error"]) == (
        made["shell"].hex,
        f"{first.span_id:016x}",
        "exit code 1",
    )
    assert retried["links"] == [f"{first.trace_id:032x}-{first.span_id:016x}"]
    assert retried["span"] == f"{second.span_id:016x}" and retried["service"] == "mainspring-worker"
    below = {s["parent"] for s in collector.named("settle") if s["trace"] == made["shell"].hex}
    assert below == {failed["span"], retried["span"]}


async def test_a_collector_that_is_down_delays_nothing(database_url: str) -> None:
    nowhere = "http://127.0.0.1:9"
    async with (
        started(database_url, otlp_endpoint=nowhere) as cluster,
        cluster.client() as client,
        cluster.worker(otlp_endpoint=nowhere),
    ):
        await client.create_job({"name": "untraced", "task": {"kind": "noop"}})
        execution = await client.trigger("untraced")
        assert (await client.wait(execution.execution_id, timeout_s=30)).state == "succeeded"


def test_opentelemetry_is_not_imported_without_an_endpoint() -> None:
    code = (
        "import sys, mainspring.cli.serve, mainspring.cli.worker, mainspring.worker.service, mainspring.runner.serve;"
        "from mainspring.telemetry.spans import open_spans; assert open_spans(None, role='x') is None;"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (str(CALLER), CALLER),
        (str(CALLER).replace("00-", "ff-", 1), None),
        (str(CALLER) + "-more", None),
        ("00-" + "0" * 32 + "-" + "1" * 16 + "-01", None),
        (str(CALLER).upper(), None),
        (None, None),
    ],
)
def test_traceparent_headers(text: str | None, found: SpanRef | None) -> None:
    assert read_traceparent(text) == found
