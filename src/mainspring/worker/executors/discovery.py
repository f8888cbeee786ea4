"""Finds the installed executors by entry point, and starts and stops them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from mainspring.domain.plugin import OWN_KINDS
from mainspring.worker.executors.contract import Executor, Host, LongLivedExecutor

ENTRY_POINT_GROUP = "mainspring.executors"


def load_executors() -> dict[str, Executor]:
    """Return every executor of this installation, by kind."""
    return {point.name: point.load()() for point in entry_points(group=ENTRY_POINT_GROUP)}


def schemas_of(executors: Mapping[str, Executor]) -> dict[str, dict[str, Any]]:
    """Return the settings schemas of plug-ins, by kind."""
    found = {kind: getattr(executor, "schema", {}) for kind, executor in executors.items() if kind not in OWN_KINDS}
    return {kind: schema for kind, schema in found.items() if schema}


async def start_all(executors: Mapping[str, Executor], host: Host) -> None:
    for executor in executors.values():
        if isinstance(executor, LongLivedExecutor):
            await executor.start(host)


async def stop_all(executors: Mapping[str, Executor]) -> None:
    for executor in executors.values():
        if isinstance(executor, LongLivedExecutor):
            await executor.stop()
