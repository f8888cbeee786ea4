"""Client for the HTTP API, async and sync, with server discovery.

    with Client() as client:
        execution = client.trigger("report", wire.RunNow(params={"region": "eu"}))
        print(client.wait(execution.execution_id).state)

`AsyncClient` has the same methods as coroutines. Both raise the errors of `mainspring.domain.errors`, plus
`Unreachable`, `WaitTimedOut`, `ExecutionFailed` and `SubmitFailed`.
"""

from mainspring.client.api import AsyncClient
from mainspring.client.discovery import Server, discover
from mainspring.client.problems import ExecutionFailed, Unreachable, WaitTimedOut
from mainspring.client.submission import SubmitFailed
from mainspring.client.sync import Client

__all__ = [
    "AsyncClient", "Client", "ExecutionFailed", "Server", "SubmitFailed", "Unreachable", "WaitTimedOut", "discover",
]  # fmt: skip
