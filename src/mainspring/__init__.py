"""Mainspring: a distributed job scheduler on PostgreSQL alone.

import mainspring as ms

@ms.job(schedule="0 2 * * *", tz="Europe/Berlin", retries=3)
def report(day: ms.FireDate, region: str = "eu") -> dict: ...

report.submit(region="us")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mainspring.sdk.context import Context as Context
    from mainspring.sdk.context import NotExecuting as NotExecuting
    from mainspring.sdk.context import context as context
    from mainspring.sdk.job import FireDate as FireDate
    from mainspring.sdk.job import Job as Job
    from mainspring.sdk.job import every as every
    from mainspring.sdk.job import job as job
    from mainspring.sdk.progress import report_progress as report_progress
    from mainspring.sdk.progress import track as track
    from mainspring.sdk.transaction import AlreadyDone as AlreadyDone
    from mainspring.sdk.transaction import create_marker_table as create_marker_table
    from mainspring.sdk.transaction import transaction as transaction
    from mainspring.sdk.workflow import Flow as Flow
    from mainspring.sdk.workflow import Workflow as Workflow
    from mainspring.sdk.workflow import workflow as workflow

_MODULES = {
    "AlreadyDone": "transaction",
    "Context": "context",
    "FireDate": "job",
    "Flow": "workflow",
    "Job": "job",
    "NotExecuting": "context",
    "Workflow": "workflow",
    "context": "context",
    "create_marker_table": "transaction",
    "every": "job",
    "job": "job",
    "report_progress": "progress",
    "track": "progress",
    "transaction": "transaction",
    "workflow": "workflow",
}
__all__ = [
    "AlreadyDone", "Context", "FireDate", "Flow", "Job", "NotExecuting", "Workflow", "__version__", "context",
    "create_marker_table", "every", "job", "report_progress", "track", "transaction", "workflow",
]  # fmt: skip


if not TYPE_CHECKING:  # type checkers must report unknown names

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'mainspring' has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f"mainspring.sdk.{_MODULES[name]}"), name)
        globals()[name] = value
        return value
