"""Executors: plug-ins that execute one task kind each.

Packages that add a kind import from here.
"""

from mainspring.worker.executors.contract import DirectExecutor, Executor, Host, LongLivedExecutor
from mainspring.worker.executors.discovery import load_executors, schemas_of, start_all, stop_all
from mainspring.worker.executors.work import Done, Work, missing_parameter, refuse_splicing

__all__ = [
    "DirectExecutor",
    "Done",
    "Executor",
    "Host",
    "LongLivedExecutor",
    "Work",
    "load_executors",
    "missing_parameter",
    "refuse_splicing",
    "schemas_of",
    "start_all",
    "stop_all",
]
