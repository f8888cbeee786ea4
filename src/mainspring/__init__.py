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
    from mainspring.client import AsyncClient as AsyncClient
    from mainspring.client import Client as Client
    from mainspring.client import ExecutionFailed as ExecutionFailed
    from mainspring.client import SubmitFailed as SubmitFailed
    from mainspring.client import Unreachable as Unreachable
    from mainspring.client import WaitTimedOut as WaitTimedOut
    from mainspring.domain.errors import MainspringError as MainspringError
    from mainspring.sdk.context import Context as Context
    from mainspring.sdk.context import NotExecuting as NotExecuting
    from mainspring.sdk.context import context as context
    from mainspring.sdk.fake_execution import FakeExecution as FakeExecution
    from mainspring.sdk.fake_execution import fake_execution as fake_execution
    from mainspring.sdk.handle import Handle as Handle
    from mainspring.sdk.job import Job as Job
    from mainspring.sdk.job import every as every
    from mainspring.sdk.job import job as job
    from mainspring.sdk.logs import LogFilter as LogFilter
    from mainspring.sdk.logs import add_log_fields as add_log_fields
    from mainspring.sdk.logs import log_fields as log_fields
    from mainspring.sdk.parameters import FireDate as FireDate
    from mainspring.sdk.progress import report_progress as report_progress
    from mainspring.sdk.progress import track as track
    from mainspring.sdk.transaction import AlreadyDone as AlreadyDone
    from mainspring.sdk.transaction import create_marker_table as create_marker_table
    from mainspring.sdk.transaction import transaction as transaction
    from mainspring.sdk.workflow import Flow as Flow
    from mainspring.sdk.workflow import Workflow as Workflow
    from mainspring.sdk.workflow import workflow as workflow

_MODULES = {
    "AlreadyDone": "sdk.transaction",
    "AsyncClient": "client",
    "Client": "client",
    "Context": "sdk.context",
    "ExecutionFailed": "client",
    "FakeExecution": "sdk.fake_execution",
    "FireDate": "sdk.parameters",
    "Flow": "sdk.workflow",
    "Handle": "sdk.handle",
    "Job": "sdk.job",
    "LogFilter": "sdk.logs",
    "MainspringError": "domain.errors",
    "NotExecuting": "sdk.context",
    "SubmitFailed": "client",
    "Unreachable": "client",
    "WaitTimedOut": "client",
    "Workflow": "sdk.workflow",
    "add_log_fields": "sdk.logs",
    "context": "sdk.context",
    "create_marker_table": "sdk.transaction",
    "every": "sdk.job",
    "fake_execution": "sdk.fake_execution",
    "job": "sdk.job",
    "log_fields": "sdk.logs",
    "report_progress": "sdk.progress",
    "track": "sdk.progress",
    "transaction": "sdk.transaction",
    "workflow": "sdk.workflow",
}
__all__ = [
    "AlreadyDone", "AsyncClient", "Client", "Context", "ExecutionFailed", "FakeExecution", "FireDate", "Flow", "Handle",
    "Job", "LogFilter", "MainspringError", "NotExecuting", "SubmitFailed", "Unreachable", "WaitTimedOut", "Workflow",
    "__version__", "add_log_fields", "context", "create_marker_table", "every", "fake_execution", "job", "log_fields",
    "report_progress", "track", "transaction", "workflow",
]  # fmt: skip


if not TYPE_CHECKING:  # type checkers must report unknown names

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'mainspring' has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f"mainspring.{_MODULES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*__all__, *globals()} - {"TYPE_CHECKING", "Any", "annotations"})
