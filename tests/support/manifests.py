"""Manifests for tests, and how to apply them."""

from __future__ import annotations

from typing import Any

from mainspring import wire
from mainspring.client import AsyncClient


def manifest(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, **spec.pop("metadata", {})}
    return {"kind": kind, "metadata": metadata, "spec": spec}


def job(name: str, **spec: Any) -> dict[str, Any]:
    return manifest("Job", name, **{"shell": ["true"], **spec})


def workflow(name: str, **spec: Any) -> dict[str, Any]:
    return manifest("Workflow", name, **{"steps": {"a": {"shell": ["true"]}}, **spec})


async def applied(
    client: AsyncClient, *manifests: dict[str, Any], dry_run: bool = False, **more: Any
) -> wire.ManifestPlan:
    return await client.apply_manifests(wire.ApplyManifests(manifests=list(manifests), **more), dry_run=dry_run)


async def compared(client: AsyncClient, *manifests: dict[str, Any], **more: Any) -> wire.ManifestPlan:
    return await client.diff_manifests(wire.ApplyManifests(manifests=list(manifests), **more))


def actions(plan: wire.ManifestPlan) -> list[str]:
    return [f"{change.action} {change.kind}/{change.name}" for change in plan.changes]


def counts(plan: wire.ManifestPlan) -> tuple[int, int, int, int]:
    """Created, changed, deleted, unchanged."""
    return plan.created, plan.changed, plan.deleted, plan.unchanged


def every_kind(tag: str) -> list[dict[str, Any]]:
    """One manifest of each kind, which refer to one another."""
    return [
        manifest("Queue", f"q-{tag}", cap=4, max_duration_s=7200, placement="best_fit"),
        manifest("Calendar", f"c-{tag}", dates=["2030-12-25"], rules=["* * SUN"]),
        manifest(
            "Channel",
            f"ch-{tag}",
            target={"kind": "slack", "url": "https://hooks.example.com/T/B/secret-of-slack"},
            events=["execution.failed"],
            jobs=["etl-*"],
        ),
        manifest(
            "AlertRule", f"r-{tag}", condition="dead_letters", threshold=50, channels=[f"ch-{tag}"], **{"for": 60}
        ),
        job(
            f"j-{tag}",
            schedule={"cron": "0 2 * * *", "timezone": "Europe/Berlin", "calendar": f"c-{tag}"},
            queue=f"q-{tag}",
            retries={"max": 3, "base": "10s"},
            notify=[{"on": ["failed"], "to": [f"ch-{tag}"]}],
            params={"region": {"type": "string", "default": "eu"}},
            metadata={"labels": {"team": "finance"}, "owner": "data", "runbook": "https://wiki.example.com/x"},
        ),
        workflow(
            f"w-{tag}",
            steps={
                "a": {"shell": ["true"], "timeout": "5m"},
                "b": {
                    "http": {"url": "https://example.com", "method": "POST", "max_bytes": 0, "body": {}},
                    "needs": ["a"],
                },
                "c": {
                    "container": {"image": "etl:3", "args": ["load"]},
                    "needs": ["a"],
                    "when": "steps.a.state == 'succeeded'",
                },
                "d": {"approval": {"expires": "24h"}, "needs": ["b", "c"]},
                "e": {"python": "app:f", "args": {"n": 0}, "needs": ["d"]},
            },
            schedule={"every": "1h"},
            notify=[{"on": ["failed", "recovered"], "to": [f"ch-{tag}"]}],
            metadata={"owner": "data"},
        ),
        manifest(
            "Trigger",
            f"t-{tag}",
            source={"kind": "webhook", "scheme": "github", "events": ["push"]},
            job=f"j-{tag}",
            when="body.ref != ''",
            params={"region": "{{body.region}}"},
        ),
        manifest("Blackout", f"b-{tag}", schedule={"cron": "0 3 * * SUN"}, lasts="2h", job=f"j-{tag}", reason="backup"),
        manifest("Blackout", f"b2-{tag}", start_at="2040-01-01T00:00:00+01:00", end_at="2040-01-01T06:00:00.0005Z"),
        manifest(
            "Reservation",
            f"v-{tag}",
            start_at="2040-01-01T00:00:00Z",
            end_at="2040-01-02T00:00:00Z",
            slots=2,
            resources={"cpu": 1.5, "memory": "512Mi", "gpu": 1},
            labels={"zone": "eu"},
            queue=f"q-{tag}",
            anyway=True,
            reason="month end",
        ),
    ]
