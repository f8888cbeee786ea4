"""Workflows and runs for tests of pages."""

from __future__ import annotations

from typing import Any

from mainspring import wire
from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.intake import runs as run_actions
from mainspring.intake import workflows
from tests.conftest import Cluster
from tests.support.runs import spec


async def begun(cluster: Cluster, name: str, steps: dict[str, Any]) -> wire.Run:
    await workflows.apply(cluster.database, spec(name, steps), tenant=TENANT, by="test")
    return await run_actions.start(cluster.context.runs, name, wire.RunRequest(), tenant=TENANT, by="test")


GATES = {
    "first": {"approval": {"self_approval": True}},
    "left": {"approval": {"self_approval": True}, "needs": ["first"]},
    "right": {"approval": {"self_approval": True}, "needs": ["first"]},
    "last": {"approval": {"self_approval": True}, "needs": ["left", "right"]},
}
