"""Client methods for diagnosis, login links, browser sessions and the audit log."""

from __future__ import annotations

from uuid import UUID

from mainspring import wire
from mainspring.client.paths import path_of
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
        return await self._transport.request(wire.LoginLink, "POST", "/api/v1/login-links", creates=True)

    async def browser_sessions(self) -> wire.Page[wire.BrowserSession]:
        """List the browsers that are signed in with this token, or as an admin with any token of the tenant."""
        return await self._transport.request(wire.Page[wire.BrowserSession], "GET", "/api/v1/browser-sessions")

    async def end_browser_session(self, session_id: UUID | str) -> None:
        await self._transport.send("DELETE", path_of("browser-sessions", session_id))

    async def end_browser_sessions(self) -> wire.EndedSessions:
        """End all browser sessions of this token."""
        return await self._transport.request(wire.EndedSessions, "DELETE", "/api/v1/browser-sessions")
