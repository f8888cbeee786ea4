"""Client methods for alerts, silences and notification channels."""

from __future__ import annotations

from uuid import UUID

from mainspring import wire
from mainspring.client.paths import path_of
from mainspring.client.transport import Connected, Params
from mainspring.domain.alert import Rule


class AlertMethods(Connected):
    async def alerts(
        self, *, state: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.Alert]:
        params: Params = {"state": state, "limit": limit, "cursor": cursor}
        return await self._transport.request(wire.Page[wire.Alert], "GET", "/api/v1/alerts", params=params)

    async def alert_rules(self) -> wire.Page[wire.AlertRule]:
        return await self._transport.request(wire.Page[wire.AlertRule], "GET", "/api/v1/alert-rules")

    async def put_alert_rule(self, name: str, rule: Rule) -> wire.AlertRule:
        """Create or replace a rule; the name of a built-in rule overrides that rule."""
        return await self._transport.request(wire.AlertRule, "PUT", path_of("alert-rules", name), body=rule)

    async def delete_alert_rule(self, name: str) -> None:
        await self._transport.send("DELETE", path_of("alert-rules", name))

    async def silences(self) -> wire.Page[wire.Silence]:
        return await self._transport.request(wire.Page[wire.Silence], "GET", "/api/v1/silences")

    async def add_silence(self, silence: wire.NewSilence) -> wire.Silence:
        return await self._transport.request(wire.Silence, "POST", "/api/v1/silences", body=silence, creates=True)

    async def delete_silence(self, silence_id: UUID) -> None:
        await self._transport.send("DELETE", path_of("silences", silence_id))

    async def channels(self) -> wire.Page[wire.Channel]:
        return await self._transport.request(wire.Page[wire.Channel], "GET", "/api/v1/channels")

    async def channel(self, name: str) -> wire.Channel:
        return await self._transport.request(wire.Channel, "GET", path_of("channels", name))

    async def add_channel(self, channel: wire.NewChannel) -> wire.Channel:
        """Create a channel. A webhook's generated signing secret is returned only by this call."""
        return await self._transport.request(wire.Channel, "POST", "/api/v1/channels", body=channel, creates=True)

    async def put_channel(self, name: str, channel: wire.ChannelSpec) -> wire.Channel:
        """Replace a channel; omitted secrets keep their values, unless its address changes."""
        return await self._transport.request(wire.Channel, "PUT", path_of("channels", name), body=channel)

    async def delete_channel(self, name: str) -> None:
        await self._transport.send("DELETE", path_of("channels", name))

    async def test_channel(self, name: str) -> wire.ChannelTest:
        """Send a test message and return the receiver's response."""
        path = path_of("channels", name, "test")
        return await self._transport.request(wire.ChannelTest, "POST", path, wait_s=60.0)

    async def enable_channel(self, name: str) -> wire.Channel:
        return await self._transport.request(wire.Channel, "POST", path_of("channels", name, "enable"))

    async def deliveries(
        self,
        *,
        channel: str | None = None,
        state: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> wire.Page[wire.Delivery]:
        params: Params = {"channel": channel, "state": state, "limit": limit, "cursor": cursor}
        return await self._transport.request(wire.Page[wire.Delivery], "GET", "/api/v1/deliveries", params=params)
