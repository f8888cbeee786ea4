"""Client methods for tenants, which need a token of a cluster administrator."""

from __future__ import annotations

from mainspring import wire
from mainspring.client.paths import path_of
from mainspring.client.transport import Connected, Params


class TenantMethods(Connected):
    async def tenants(self, *, limit: int | None = None, cursor: str | None = None) -> wire.Page[wire.Tenant]:
        """List the tenants by name, with quotas and shares."""
        params: Params = {"limit": limit, "cursor": cursor}
        return await self._transport.request(wire.Page[wire.Tenant], "GET", "/api/v1/tenants", params=params)

    async def tenant(self, name: str) -> wire.Tenant:
        return await self._transport.request(wire.Tenant, "GET", path_of("tenants", name))

    async def create_tenant(self, new: wire.NewTenant) -> wire.Tenant:
        """Create a tenant; issue its first token with `issue_tenant_token`."""
        return await self._transport.request(wire.Tenant, "POST", "/api/v1/tenants", body=new, creates=True)

    async def edit_tenant(self, name: str, settings: wire.TenantSettings) -> wire.Tenant:
        """Change weight, cap and quotas of a tenant."""
        return await self._transport.request(wire.Tenant, "PATCH", path_of("tenants", name), body=settings)

    async def suspend_tenant(self, name: str, reason: str = "") -> wire.Tenant:
        """Suspend a tenant: its requests are refused, and nothing of it fires or starts."""
        body = wire.SuspendTenant(reason=reason)
        return await self._transport.request(wire.Tenant, "POST", path_of("tenants", name, "suspend"), body=body)

    async def resume_tenant(self, name: str) -> wire.Tenant:
        """Resume a suspended tenant."""
        return await self._transport.request(wire.Tenant, "POST", path_of("tenants", name, "resume"))

    async def export_tenant(self, name: str) -> wire.TenantExport:
        """Export settings, manifests, users, roles, and tokens without secrets."""
        return await self._transport.request(wire.TenantExport, "GET", path_of("tenants", name, "export"))

    async def delete_tenant(self, name: str) -> None:
        """Delete a suspended tenant of which nothing runs."""
        await self._transport.send("DELETE", path_of("tenants", name))

    async def issue_tenant_token(self, name: str, new: wire.NewToken) -> wire.IssuedToken:
        """Issue a token in a tenant."""
        return await self._transport.request(
            wire.IssuedToken, "POST", path_of("tenants", name, "tokens"), body=new, creates=True
        )
