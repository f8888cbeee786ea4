"""Client methods for manifests."""

from __future__ import annotations

from mainspring import wire
from mainspring.client.transport import Connected, Params

MANIFESTS = "/api/v1/manifests"
APPLY_S = 300.0
"""How long the server may take for thousands of objects."""


class ManifestMethods(Connected):
    async def manifests(
        self, kind: str, *, name: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.ManifestDocument]:
        """List the objects of a kind as manifests."""
        params: Params = {"kind": kind, "name": name, "limit": limit, "cursor": cursor}
        return await self._transport.request(wire.Page[wire.ManifestDocument], "GET", MANIFESTS, params=params)

    async def diff_manifests(self, request: wire.ApplyManifests) -> wire.ManifestPlan:
        """Return what applying manifests would change; nothing is written."""
        path = f"{MANIFESTS}:diff"
        return await self._transport.request(wire.ManifestPlan, "POST", path, body=request, wait_s=APPLY_S)

    async def apply_manifests(self, request: wire.ApplyManifests, *, dry_run: bool = False) -> wire.ManifestPlan:
        """Apply manifests, all or none. A dry run checks everything and writes nothing."""
        params: Params = {"dry_run": "true" if dry_run else None}
        path = f"{MANIFESTS}:apply"
        return await self._transport.request(
            wire.ManifestPlan, "POST", path, params=params, body=request, wait_s=APPLY_S, creates=True
        )
