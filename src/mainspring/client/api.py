"""The client with coroutines: one method per API route, plus waiting and following."""

from __future__ import annotations

from mainspring.client.alerts import AlertMethods
from mainspring.client.calendars import CalendarMethods
from mainspring.client.dead_letters import DeadLetterMethods
from mainspring.client.discovery import Server, discover
from mainspring.client.executions import ExecutionMethods
from mainspring.client.fleet import FleetMethods
from mainspring.client.jobs import JobMethods
from mainspring.client.system import SystemMethods
from mainspring.client.workflows import WorkflowMethods


class AsyncClient(
    JobMethods,
    CalendarMethods,
    ExecutionMethods,
    DeadLetterMethods,
    WorkflowMethods,
    AlertMethods,
    FleetMethods,
    SystemMethods,
):
    """A connection to one server; without arguments, to the one that `discover` finds. Use it with `async with`."""

    def __init__(self, url: str | None = None, token: str | None = None, *, server: Server | None = None) -> None:
        super().__init__(server or discover(url, token))

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._transport.aclose()
