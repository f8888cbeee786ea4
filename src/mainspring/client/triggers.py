"""Client methods for triggers."""

from __future__ import annotations

from mainspring import wire
from mainspring.client.paths import path_of
from mainspring.client.transport import Connected, Params
from mainspring.domain.trigger import TriggerSpec


class TriggerMethods(Connected):
    async def triggers(
        self, *, job: str | None = None, kind: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.Trigger]:
        params: Params = {"job": job, "kind": kind, "limit": limit, "cursor": cursor}
        return await self._transport.request(wire.Page[wire.Trigger], "GET", "/api/v1/triggers", params=params)

    async def get_trigger(self, name: str) -> wire.Trigger:
        return await self._transport.request(wire.Trigger, "GET", path_of("triggers", name))

    async def add_trigger(self, trigger: wire.NewTrigger) -> wire.Trigger:
        """Create a trigger. The secret of a webhook is returned only by this call."""
        return await self._transport.request(wire.Trigger, "POST", "/api/v1/triggers", body=trigger, creates=True)

    async def put_trigger(self, name: str, spec: TriggerSpec) -> wire.Trigger:
        """Replace the definition of a trigger; its address, secrets and deliveries stay."""
        return await self._transport.request(wire.Trigger, "PUT", path_of("triggers", name), body=spec)

    async def delete_trigger(self, name: str) -> None:
        await self._transport.send("DELETE", path_of("triggers", name))

    async def pause_trigger(self, name: str, *, reason: str = "") -> wire.Trigger:
        body = wire.TriggerPause(reason=reason)
        return await self._transport.request(wire.Trigger, "POST", path_of("triggers", name, "pause"), body=body)

    async def resume_trigger(self, name: str) -> wire.Trigger:
        return await self._transport.request(wire.Trigger, "POST", path_of("triggers", name, "resume"))

    async def rotate_trigger(self, name: str, *, secret: str | None = None, overlap: str = "24h") -> wire.Trigger:
        """Replace the secret of a webhook, which only this call returns; the previous one stays valid for `overlap`."""
        body = wire.RotateTriggerSecret(secret=secret, overlap=overlap)
        return await self._transport.request(wire.Trigger, "POST", path_of("triggers", name, "rotate"), body=body)

    async def test_trigger(self, name: str, sample: wire.TriggerSample) -> wire.TriggerTest:
        """Return what a sample would lead to; nothing is started or recorded."""
        return await self._transport.request(wire.TriggerTest, "POST", path_of("triggers", name, "test"), body=sample)

    async def trigger_deliveries(
        self, name: str, *, outcome: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.TriggerDelivery]:
        params: Params = {"outcome": outcome, "limit": limit, "cursor": cursor}
        path = path_of("triggers", name, "deliveries")
        return await self._transport.request(wire.Page[wire.TriggerDelivery], "GET", path, params=params)
