"""The client with coroutines: one method per API route, plus waiting and following."""

from __future__ import annotations

from mainspring.client.alerts import AlertMethods
from mainspring.client.calendars import CalendarMethods
from mainspring.client.dead_letters import DeadLetterMethods
from mainspring.client.discovery import Server, discover
from mainspring.client.executions import ExecutionMethods
from mainspring.client.fleet import FleetMethods
from mainspring.client.identity import IdentityMethods
from mainspring.client.jobs import JobMethods
from mainspring.client.manifests import ManifestMethods
from mainspring.client.secrets import SecretMethods
from mainspring.client.system import SystemMethods
from mainspring.client.tenants import TenantMethods
from mainspring.client.triggers import TriggerMethods
from mainspring.client.workflows import WorkflowMethods
from mainspring.http_client.network import Network


class AsyncClient(
    JobMethods,
    CalendarMethods,
    ExecutionMethods,
    DeadLetterMethods,
    WorkflowMethods,
    ManifestMethods,
    AlertMethods,
    TriggerMethods,
    FleetMethods,
    IdentityMethods,
    TenantMethods,
    SecretMethods,
    SystemMethods,
):
    """A connection to one server; without arguments, to the one that `discover` finds. Use it with `async with`.

    Calls share `max_connections`; further ones wait in order. Calls that wait on the server (`wait`) have as many of
    their own. Streams are not limited.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        server: Server | None = None,
        network: Network | None = None,
        max_connections: int = 64,
    ) -> None:
        super().__init__(server or discover(url, token), network=network, max_connections=max_connections)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        self._transport.close()
