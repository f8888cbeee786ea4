"""Alerts, their rules, silences, channels and deliveries over HTTP."""

from __future__ import annotations

from mainspring import wire
from mainspring.alerts import channels, rules, silences
from mainspring.api.route import Call, Table
from mainspring.domain.alert import Rule

table = Table()
CHANNELS = "/api/v1/channels"
CHANNEL = CHANNELS + "/{name}"
SILENCES = "/api/v1/silences"


@table.route("GET", "/api/v1/alerts", scope="read", answer=wire.Page[wire.Alert], query=("state", "limit", "cursor"))
async def list_alerts(call: Call) -> wire.Page[wire.Alert]:
    """List alerts, the newest first; with `state=firing` those that fire now."""
    return await rules.list_alerts(
        call.context.database,
        tenant=call.tenant,
        state=call.query("state"),
        limit=call.number("limit", 50),
        cursor=call.query("cursor"),
    )


@table.route("GET", "/api/v1/alert-rules", scope="read", answer=wire.Page[wire.AlertRule])
async def list_rules(call: Call) -> wire.Page[wire.AlertRule]:
    """List the rules that are judged: the built-in ones, and what was written."""
    return await rules.list_rules(call.context.database, tenant=call.tenant)


@table.route("PUT", "/api/v1/alert-rules/{name}", scope="write", body=Rule, answer=wire.AlertRule)
async def put_rule(call: Call) -> wire.AlertRule:
    """Write a rule, in place of a built-in one if it has its name."""
    return await rules.put_rule(
        call.context.database, call.path("name"), call.body, tenant=call.tenant, by=call.caller.name
    )


@table.route("DELETE", "/api/v1/alert-rules/{name}", scope="write", status=204)
async def delete_rule(call: Call) -> None:
    """Take back what was written; a built-in rule is then as it was."""
    await rules.delete_rule(call.context.database, call.path("name"), tenant=call.tenant, by=call.caller.name)


@table.route("GET", SILENCES, scope="read", answer=wire.Page[wire.Silence])
async def list_silences(call: Call) -> wire.Page[wire.Silence]:
    """List silences and maintenance windows, the newest first."""
    return await silences.list_all(call.context.database, tenant=call.tenant)


@table.route("POST", SILENCES, scope="write", body=wire.NewSilence, answer=wire.Silence, status=201)
async def create_silence(call: Call) -> wire.Silence:
    """Add a silence or a maintenance window."""
    return await silences.create(call.context.database, call.body, tenant=call.tenant, by=call.caller.name)


@table.route("DELETE", SILENCES + "/{silence_id}", scope="write", status=204)
async def delete_silence(call: Call) -> None:
    """End a silence: what it held back is told."""
    await silences.delete(call.context.database, call.path("silence_id"), tenant=call.tenant, by=call.caller.name)


@table.route("GET", CHANNELS, scope="read", answer=wire.Page[wire.Channel])
async def list_channels(call: Call) -> wire.Page[wire.Channel]:
    """List channels, without their secrets."""
    return await channels.list_all(call.context.database, tenant=call.tenant)


@table.route("POST", CHANNELS, scope="write", body=wire.NewChannel, answer=wire.Channel, status=201)
async def create_channel(call: Call) -> wire.Channel:
    """Add a channel. A webhook's signing secret, if it was made here, is shown only now."""
    return await channels.create(call.context.database, call.body, tenant=call.tenant, by=call.caller.name)


@table.route("GET", CHANNEL, scope="read", answer=wire.Channel)
async def get_channel(call: Call) -> wire.Channel:
    """Get a channel, without its secrets."""
    return await channels.get(call.context.database, call.path("name"), tenant=call.tenant)


@table.route("PUT", CHANNEL, scope="write", body=wire.ChannelSpec, answer=wire.Channel)
async def replace_channel(call: Call) -> wire.Channel:
    """Write a channel anew; secrets that are left out stay as they were."""
    return await channels.replace(
        call.context.database, call.path("name"), call.body, tenant=call.tenant, by=call.caller.name
    )


@table.route("DELETE", CHANNEL, scope="write", status=204)
async def delete_channel(call: Call) -> None:
    """Delete a channel that no job names, with what was to be sent to it."""
    await channels.delete(call.context.database, call.path("name"), tenant=call.tenant, by=call.caller.name)


@table.route("POST", CHANNEL + "/test", scope="write", answer=wire.ChannelTest)
async def test_channel(call: Call) -> wire.ChannelTest:
    """Send a test message now, and say what the receiver answered."""
    return await channels.test(call.context.database, call.context.sender, call.path("name"), tenant=call.tenant)


@table.route("POST", CHANNEL + "/enable", scope="write", answer=wire.Channel)
async def enable_channel(call: Call) -> wire.Channel:
    """Send to a disabled channel again, from what happens next."""
    return await channels.enable(call.context.database, call.path("name"), tenant=call.tenant, by=call.caller.name)


@table.route(
    "GET",
    "/api/v1/deliveries",
    scope="read",
    answer=wire.Page[wire.Delivery],
    query=("channel", "state", "limit", "cursor"),
)
async def list_deliveries(call: Call) -> wire.Page[wire.Delivery]:
    """List what was sent to channels, the newest first, with what was answered."""
    return await channels.deliveries(
        call.context.database,
        tenant=call.tenant,
        limit=call.number("limit", 50),
        cursor=call.query("cursor"),
        channel=call.query("channel"),
        state=call.query("state"),
    )
