"""Routes of alerts, alert rules, silences, channels and deliveries."""

from __future__ import annotations

from mainspring import wire
from mainspring.alerts import channels, rules, silences
from mainspring.api.route import Call, Table
from mainspring.domain.alert import Rule

table = Table()
CHANNELS = "/api/v1/channels"
CHANNEL = CHANNELS + "/{name}"
SILENCES = "/api/v1/silences"


@table.route("GET", "/api/v1/alerts", scope="read", response=wire.Page[wire.Alert], query=("state", "limit", "cursor"))
async def list_alerts(call: Call) -> wire.Page[wire.Alert]:
    """List alerts, newest first; `state=firing` lists those that fire now."""
    return await rules.list_alerts(
        call.context.database,
        tenant=call.tenant,
        state=call.query("state"),
        limit=call.number("limit", 50),
        cursor=call.query("cursor"),
    )


@table.route("GET", "/api/v1/alert-rules", scope="read", response=wire.Page[wire.AlertRule])
async def list_rules(call: Call) -> wire.Page[wire.AlertRule]:
    """List the alert rules: built-in and custom."""
    return await rules.list_rules(call.context.database, tenant=call.tenant)


@table.route("PUT", "/api/v1/alert-rules/{name}", scope="write", body=Rule, response=wire.AlertRule)
async def put_rule(call: Call) -> wire.AlertRule:
    """Create or replace an alert rule; the name of a built-in rule overrides that rule."""
    return await rules.put_rule(
        call.context.database, call.path("name"), call.body, tenant=call.tenant, by=call.caller.name
    )


@table.route("DELETE", "/api/v1/alert-rules/{name}", scope="write", status=204)
async def delete_rule(call: Call) -> None:
    """Delete a custom alert rule; a built-in rule returns to its default."""
    await rules.delete_rule(call.context.database, call.path("name"), tenant=call.tenant, by=call.caller.name)


@table.route("GET", SILENCES, scope="read", response=wire.Page[wire.Silence])
async def list_silences(call: Call) -> wire.Page[wire.Silence]:
    """List silences and maintenance windows, newest first."""
    return await silences.list_all(call.context.database, tenant=call.tenant)


@table.route("POST", SILENCES, scope="write", body=wire.NewSilence, response=wire.Silence, status=201, creates=True)
async def create_silence(call: Call) -> wire.Silence:
    """Create a silence or a maintenance window."""
    return await silences.create(call.context.database, call.body, tenant=call.tenant, by=call.caller.name)


@table.route("DELETE", SILENCES + "/{silence_id}", scope="write", status=204)
async def delete_silence(call: Call) -> None:
    """End a silence; notifications that it held back are sent."""
    await silences.delete(call.context.database, call.path("silence_id"), tenant=call.tenant, by=call.caller.name)


@table.route("GET", CHANNELS, scope="read", response=wire.Page[wire.Channel])
async def list_channels(call: Call) -> wire.Page[wire.Channel]:
    """List channels, without their secrets."""
    return await channels.list_all(call.context.database, tenant=call.tenant)


@table.route("POST", CHANNELS, scope="write", body=wire.NewChannel, response=wire.Channel, status=201, creates=True)
async def create_channel(call: Call) -> wire.Channel:
    """Create a channel; only this response contains a webhook's generated signing secret."""
    context = call.context
    return await channels.create(context.database, context.vault, call.body, tenant=call.tenant, by=call.caller.name)


@table.route("GET", CHANNEL, scope="read", response=wire.Channel)
async def get_channel(call: Call) -> wire.Channel:
    """Get a channel, without its secrets."""
    return await channels.get(call.context.database, call.path("name"), tenant=call.tenant)


@table.route("PUT", CHANNEL, scope="write", body=wire.ChannelSpec, response=wire.Channel)
async def replace_channel(call: Call) -> wire.Channel:
    """Replace a channel; omitted secrets keep their values.

    A channel with another address (URL, mail server, user) needs its secrets again.
    """
    context = call.context
    return await channels.replace(
        context.database, context.vault, call.path("name"), call.body, tenant=call.tenant, by=call.caller.name
    )


@table.route("DELETE", CHANNEL, scope="write", status=204)
async def delete_channel(call: Call) -> None:
    """Delete a channel that no job uses, with its pending deliveries."""
    await channels.delete(call.context.database, call.path("name"), tenant=call.tenant, by=call.caller.name)


@table.route("POST", CHANNEL + "/test", scope="write", response=wire.ChannelTest)
async def test_channel(call: Call) -> wire.ChannelTest:
    """Send a test message and return the receiver's response."""
    context = call.context
    return await channels.test(context.database, context.vault, context.sender, call.path("name"), tenant=call.tenant)


@table.route("POST", CHANNEL + "/enable", scope="write", response=wire.Channel)
async def enable_channel(call: Call) -> wire.Channel:
    """Enable a disabled channel for events from now on."""
    return await channels.enable(call.context.database, call.path("name"), tenant=call.tenant, by=call.caller.name)


@table.route(
    "GET",
    "/api/v1/deliveries",
    scope="read",
    response=wire.Page[wire.Delivery],
    query=("channel", "state", "limit", "cursor"),
)
async def list_deliveries(call: Call) -> wire.Page[wire.Delivery]:
    """List deliveries to channels with the receivers' responses, newest first."""
    return await channels.deliveries(
        call.context.database,
        tenant=call.tenant,
        limit=call.number("limit", 50),
        cursor=call.query("cursor"),
        channel=call.query("channel"),
        state=call.query("state"),
    )
