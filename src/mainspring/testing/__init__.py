"""Tests of jobs and workflows: a whole cluster in one process, under a clock that only the test moves.

def test_report(mainspring_cluster):
    mainspring_cluster.load("shop.jobs")
    mainspring_cluster.travel_to("2026-10-25T04:00", tz="Europe/Berlin")
    assert [e.state for e in mainspring_cluster.executions("report")] == ["succeeded"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainspring.testing.async_cluster import AsyncCluster as AsyncCluster
    from mainspring.testing.async_cluster import StillBusy as StillBusy
    from mainspring.testing.cluster import Cluster as Cluster
    from mainspring.testing.postgres import TestDatabases as TestDatabases
    from mainspring.testing.worker import TestWorker as TestWorker

_MODULES = {
    "AsyncCluster": "async_cluster",
    "Cluster": "cluster",
    "StillBusy": "async_cluster",
    "TestDatabases": "postgres",
    "TestWorker": "worker",
}
__all__ = ["AsyncCluster", "Cluster", "StillBusy", "TestDatabases", "TestWorker"]


if not TYPE_CHECKING:  # pytest loads the plug-in in every process; what it needs is imported when a test asks for it

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'mainspring.testing' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"mainspring.testing.{_MODULES[name]}"), name)
