"""Routes of triggers and their deliveries."""

from __future__ import annotations

from mainspring import wire
from mainspring.api.route import Call, Table
from mainspring.domain.trigger import TriggerSpec
from mainspring.intake.triggers import definitions
from mainspring.intake.triggers.deliver import dry_run
from mainspring.intake.triggers.hooks import sample_of
from mainspring.views import triggers

table = Table()
TRIGGERS = "/api/v1/triggers"
TRIGGER = TRIGGERS + "/{name}"


@table.route("GET", TRIGGERS, scope="read", response=wire.Page[wire.Trigger], query=("job", "kind", "limit", "cursor"))
async def list_triggers(call: Call) -> wire.Page[wire.Trigger]:
    """List triggers by name, without their secrets; `job` limits the list to those that start it."""
    return await triggers.list_triggers(
        call.context.database,
        tenant=call.tenant,
        limit=call.number("limit", 100),
        cursor=call.query("cursor"),
        job=call.query("job"),
        kind=call.query("kind"),
    )


@table.route("POST", TRIGGERS, scope="write", body=wire.NewTrigger, response=wire.Trigger, status=201, creates=True)
async def create_trigger(call: Call) -> wire.Trigger:
    """Create a trigger; only this response contains the secret that was generated for a webhook."""
    body: wire.NewTrigger = call.body
    context, by = call.context, call.caller.name
    return await definitions.create(
        context.database, context.vault, body.name, body.spec, secret=body.secret, tenant=call.tenant, by=by
    )


@table.route("GET", TRIGGER, scope="read", response=wire.Trigger)
async def get_trigger(call: Call) -> wire.Trigger:
    """Get a trigger, without its secrets."""
    return await triggers.get(call.context.database, call.path("name"), tenant=call.tenant)


@table.route("PUT", TRIGGER, scope="write", body=TriggerSpec, response=wire.Trigger)
async def replace_trigger(call: Call) -> wire.Trigger:
    """Replace the definition of a trigger; its address, secrets and deliveries stay."""
    return await definitions.replace(
        call.context.database, call.path("name"), call.body, tenant=call.tenant, by=call.caller.name
    )


@table.route("DELETE", TRIGGER, scope="write", status=204)
async def delete_trigger(call: Call) -> None:
    """Delete a trigger with its deliveries; executions that it started are kept."""
    await definitions.delete(call.context.database, call.path("name"), tenant=call.tenant, by=call.caller.name)


@table.route("POST", TRIGGER + "/pause", scope="write", body=wire.TriggerPause, response=wire.Trigger)
async def pause_trigger(call: Call) -> wire.Trigger:
    """Pause a trigger: deliveries start nothing, and their senders get the reason."""
    return await definitions.pause(
        call.context.database, call.path("name"), call.body.reason, tenant=call.tenant, by=call.caller.name
    )


@table.route("POST", TRIGGER + "/resume", scope="write", response=wire.Trigger)
async def resume_trigger(call: Call) -> wire.Trigger:
    """Resume a paused trigger."""
    return await definitions.resume(call.context.database, call.path("name"), tenant=call.tenant, by=call.caller.name)


@table.route("POST", TRIGGER + "/rotate", scope="write", body=wire.RotateTriggerSecret, response=wire.Trigger)
async def rotate_secret(call: Call) -> wire.Trigger:
    """Replace the secret of a webhook; the previous one stays valid for `overlap`.

    Only this response contains the generated secret.
    """
    context = call.context
    return await definitions.rotate(
        context.database, context.vault, call.path("name"), call.body, tenant=call.tenant, by=call.caller.name
    )


@table.route("POST", TRIGGER + "/test", scope="write", body=wire.TriggerSample, response=wire.TriggerTest)
async def test_trigger(call: Call) -> wire.TriggerTest:
    """Show what a sample would lead to, without starting or recording anything."""
    trigger, arrival = await sample_of(call.context.database, call.path("name"), call.body, tenant=call.tenant)
    return await dry_run(call.context.database, trigger, trigger.spec, arrival)


@table.route(
    "GET",
    TRIGGER + "/deliveries",
    scope="read",
    response=wire.Page[wire.TriggerDelivery],
    query=("outcome", "limit", "cursor"),
)
async def list_trigger_deliveries(call: Call) -> wire.Page[wire.TriggerDelivery]:
    """List deliveries to a trigger, newest first. They are kept for a week."""
    return await triggers.deliveries(
        call.context.database,
        call.path("name"),
        tenant=call.tenant,
        limit=call.number("limit", 50),
        cursor=call.query("cursor"),
        outcome=call.query("outcome"),
    )
