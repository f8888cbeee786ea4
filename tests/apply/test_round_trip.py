"""What `export` writes, `diff` finds equal: for every kind, and for any job."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.job import JobSpec
from mainspring.domain.workflow.spec import WorkflowSpec
from mainspring.manifest import (
    KINDS,
    documents_in,
    manifest_in,
    read_job,
    read_workflows,
    shortened,
    typed,
    with_defaults,
    without_defaults,
    write_documents,
    write_job,
    write_workflow,
)
from tests.support.manifests import applied, compared, counts, every_kind

DURATIONS = st.sampled_from(["10s", "5m", "PT1H", 30, 2.5])
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
NAMES = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
TASKS = st.one_of(
    st.fixed_dictionaries(
        {"kind": st.just("shell"), "argv": st.lists(TEXTS, min_size=1, max_size=3)},
        optional={"env": st.dictionaries(NAMES, TEXTS, max_size=2), "cwd": TEXTS, "shell": st.booleans()},
    ),
    st.fixed_dictionaries(
        {"kind": st.just("http"), "url": st.just("https://example.com")},
        optional={"body": VALUES, "max_bytes": st.sampled_from([0, 1, 5000]), "headers": st.dictionaries(NAMES, TEXTS)},
    ),
    st.fixed_dictionaries(
        {"kind": st.just("python"), "function": st.just("app:f")}, optional={"args": st.dictionaries(NAMES, VALUES)}
    ),
    st.fixed_dictionaries({"kind": st.just("noop")}),
    st.fixed_dictionaries(
        {"kind": st.just("container"), "image": st.just("etl:3")},
        optional={"read_only": st.booleans(), "pids": st.just(7)},
    ),
)
SHARED: dict[str, st.SearchStrategy[Any]] = {
    "schedule": st.sampled_from(
        [{"cron": "0 2 * * *"}, [{"every": "1h"}, {"cron": "H 3 * * *", "timezone": "Europe/Berlin"}], {"every": 90}]
    ),
    "description": TEXTS,
    "metadata": st.dictionaries(NAMES, VALUES, max_size=3),
    "priority": st.integers(0, 10),
    "timeout": DURATIONS,
    "overlap": st.sampled_from(["skip", "allow"]),
    "misfire": st.fixed_dictionaries({}, optional={"policy": st.sampled_from(["all", "skip"]), "max": st.just(3)}),
    "concurrency": st.just({"key": "k", "limit": 2}),
    "max_gap": DURATIONS,
    "notify": st.just([{"on": ["failed", "slow"], "to": ["ops"], "factor": 3.0}]),
}
JOBS = st.fixed_dictionaries(
    {"name": NAMES, "task": TASKS},
    optional={
        **SHARED,
        "retries": st.fixed_dictionaries({}, optional={"max": st.integers(0, 5), "base": DURATIONS}),
        "labels": st.dictionaries(NAMES, NAMES, max_size=2),
        "resources": st.dictionaries(st.sampled_from(["cpu", "gpu"]), st.sampled_from([1, 2, "3"]), max_size=2),
        "exclusive": st.booleans(),
        "preemptible": st.booleans(),
    },
)
STEPS = st.dictionaries(
    NAMES,
    st.fixed_dictionaries(
        {"task": TASKS},
        optional={"timeout": DURATIONS, "when": st.just("true"), "params": st.dictionaries(NAMES, VALUES)},
    ),
    min_size=1,
    max_size=3,
)
WORKFLOWS = st.fixed_dictionaries({"name": NAMES, "steps": STEPS}, optional=SHARED)


def document_of(kind: str, spec: Any) -> dict[str, Any]:
    values = without_defaults(spec)
    name, metadata = values.pop("name"), values.pop("metadata", {})
    return {"kind": kind, "metadata": {"name": name, **metadata}, "spec": shortened(values)}


def without_name(values: dict[str, Any]) -> dict[str, Any]:
    """Metadata can't have the key `name`: that is the name."""
    return {**values, "metadata": {k: v for k, v in values.get("metadata", {}).items() if k != "name"}}


@given(st.lists(JOBS.map(without_name), min_size=1, max_size=3))
@settings(deadline=None)
def test_any_job_is_the_same_after_writing_and_reading(found: list[dict[str, Any]]) -> None:
    specs = [msgspec.convert(values, JobSpec) for values in found]
    text = write_documents(document_of("Job", spec) for spec in specs)
    assert [typed(manifest_in(d.value)).spec for d in documents_in(text)] == specs
    assert read_job(write_job(without_defaults(specs[0]))) == specs[0]
    assert msgspec.convert(with_defaults(specs[0]), JobSpec) == specs[0]


@given(WORKFLOWS.map(without_name))
@settings(deadline=None)
def test_any_workflow_is_the_same_after_writing_and_reading(values: dict[str, Any]) -> None:
    spec = msgspec.convert(values, WorkflowSpec)
    (document,) = documents_in(write_documents([document_of("Workflow", spec)]))
    assert typed(manifest_in(document.value)) == spec
    assert read_workflows(write_workflow(spec)) == [spec]


async def exported(client: AsyncClient) -> list[dict[str, Any]]:
    """All objects as YAML, read again."""
    found: list[wire.ManifestDocument] = []
    for kind in KINDS:
        cursor: str | None = None
        while True:
            page = await client.manifests(kind, limit=2, cursor=cursor)
            found += page.items
            if (cursor := page.next_cursor) is None:
                break
    text = write_documents({"kind": d.kind, "metadata": d.metadata, "spec": d.spec} for d in found)
    assert "secret-of-slack" not in text
    return [document.value for document in documents_in(text)]


@pytest.mark.anyio
async def test_an_export_of_every_kind_is_equal_to_the_server(client: AsyncClient) -> None:
    tag = uuid4().hex[:8]
    manifests = every_kind(tag)
    await applied(client, *manifests, owner="another")
    for n in range(3):
        await client.create_job({"name": f"hand-{n}-{tag}", "task": {"kind": "noop"}, "paused": n == 1})
    await client.add_blackout(wire.NewBlackout(schedule={"cron": "0 4 * * *"}, lasts="PT90M"))  # type: ignore[arg-type]
    found = await exported(client)
    assert {d["kind"] for d in found} == set(KINDS)
    assert {(d["kind"], d["metadata"]["name"]) for d in manifests} <= {
        (d["kind"], d["metadata"]["name"]) for d in found
    }
    plan = await compared(client, *found)
    assert (counts(plan), plan.changes) == ((0, 0, 0, len(found)), [])
    assert counts(await applied(client, *found, take_over=True)) == (0, 0, 0, len(found))
    assert (await compared(client, *await exported(client))).changes == []
