"""Connections of the role that sees one tenant: each remembers the tenant that it is set to."""

from __future__ import annotations

from typing import Any, cast

from mainspring.store.hints import HintingConnection
from mainspring.store.queries import q


class TenantConnection(HintingConnection):
    """A connection whose statements see only rows of one tenant (function current_tenant in the schema)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tenant: int | None = None

    async def set_tenant(self, tenant: int) -> None:
        """Restrict the following statements to a tenant. Only a change takes a round trip."""
        if self._tenant != tenant:
            self._tenant = None  # unknown if this statement is cancelled
            await self.execute(q("set_tenant"), str(tenant))
            self._tenant = tenant


async def set_tenant(connection: object, tenant: int) -> None:
    await cast(TenantConnection, connection).set_tenant(tenant)
