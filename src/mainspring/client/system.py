"""Client methods for diagnosis, login links, browser sessions and the audit log."""

from __future__ import annotations

from collections.abc import AsyncGenerator
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
        cluster: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> wire.Page[wire.AuditEntry]:
        """List audit entries, newest first; with `cluster`, those that belong to no tenant."""
        params: Params = {"subject": subject, "actor": actor, "action": action, "limit": limit, "cursor": cursor}
        params = {**params, **_of_cluster(cluster)}
        return await self._transport.request(wire.Page[wire.AuditEntry], "GET", "/api/v1/audit", params=params)

    async def verify_audit(
        self, *, cluster: bool = False, head: str | None = None, cursor: str | None = None
    ) -> wire.AuditVerification:
        """Verify a part of the hash chain of the audit log; `next_cursor` continues, None ends."""
        params: Params = {"head": head, "cursor": cursor, **_of_cluster(cluster)}
        path = "/api/v1/audit:verify"
        return await self._transport.request(wire.AuditVerification, "GET", path, params=params, wait_s=60.0)

    async def export_audit(self, *, cluster: bool = False, after: int = 0) -> AsyncGenerator[bytes, None]:
        """Yield the chained audit entries as JSON lines, in chunks."""
        params: Params = {"after": after or None, **_of_cluster(cluster)}
        async with self._transport.stream("/api/v1/audit:export", params=params) as chunks:
            async for chunk in chunks:
                yield chunk

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


def _of_cluster(cluster: bool) -> Params:
    return {"cluster": "true"} if cluster else {}
