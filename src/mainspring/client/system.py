"""Client methods for diagnosis, login links and the audit log."""

from __future__ import annotations

from mainspring import wire
from mainspring.client.transport import Connected, Params


class SystemMethods(Connected):
    async def audit(
        self,
        *,
        subject: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> wire.Page[wire.AuditEntry]:
        """List audit entries, newest first."""
        params: Params = {"subject": subject, "actor": actor, "action": action, "limit": limit, "cursor": cursor}
        return await self._transport.request(wire.Page[wire.AuditEntry], "GET", "/api/v1/audit", params=params)

    async def doctor(self, *, everything: bool = False) -> wire.Diagnosis:
        """Check the invariants on the server: for recent executions, or with `everything` for all."""
        params = {"all": "true"} if everything else None
        wait_s = 600.0 if everything else 0.0
        return await self._transport.request(wire.Diagnosis, "GET", "/api/v1/doctor", params=params, wait_s=wait_s)

    async def login_link(self) -> wire.LoginLink:
        """Create a link that signs a browser in for a limited time; append its path to the server URL."""
        return await self._transport.request(wire.LoginLink, "POST", "/api/v1/login-links")
