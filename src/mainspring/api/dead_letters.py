"""Routes of dead letters."""

from __future__ import annotations

from uuid import UUID

from mainspring import wire
from mainspring.api.route import Call, Table
from mainspring.intake import dead_letters as intake
from mainspring.intake import replays
from mainspring.views import dead_letters as dead_letter_views

table = Table()
DEAD_LETTERS = "/api/v1/dead-letters"
DEAD_LETTER = DEAD_LETTERS + "/{ref}"
SCOPE = "operate"


@table.route(
    "GET",
    DEAD_LETTERS,
    scope=SCOPE,
    response=wire.Page[wire.DeadLetter],
    query=("job", "fingerprint", "state", "limit", "cursor"),
)
async def list_dead_letters(call: Call) -> wire.Page[wire.DeadLetter]:
    """List executions that failed or were lost permanently, latest fire first."""
    return await dead_letter_views.list_dead_letters(
        call.context.database,
        tenant=call.tenant,
        cursor=call.query("cursor"),
        limit=call.number("limit", 50),
        job=call.query("job"),
        fingerprint=call.query("fingerprint"),
        states=call.request.query_params.getlist("state"),
    )


@table.route(
    "GET", DEAD_LETTERS + ":groups", scope=SCOPE, response=wire.Page[wire.DeadLetterGroup], query=("limit", "cursor")
)
async def list_groups(call: Call) -> wire.Page[wire.DeadLetterGroup]:
    """List open dead letters grouped by job and error fingerprint."""
    return await dead_letter_views.list_groups(
        call.context.database, tenant=call.tenant, cursor=call.query("cursor"), limit=call.number("limit", 100)
    )


@table.route(
    "POST", DEAD_LETTERS + ":claim", scope=SCOPE, body=wire.DeadLetterClaim, response=wire.Page[wire.DeadLetter]
)
async def claim_some(call: Call) -> wire.Page[wire.DeadLetter]:
    """Claim the oldest unclaimed dead letters; until the claim expires, other users cannot change them."""
    found = await intake.claim(call.context.database, call.body, tenant=call.tenant, by=call.caller.name)
    return wire.Page(items=found)


@table.route("POST", DEAD_LETTERS + ":replay", scope=SCOPE, body=wire.ReplayMany, response=wire.Replay, creates=True)
async def replay_many(call: Call) -> wire.Replay:
    """Replay many dead letters: at a rate, after a canary, or as a `dry_run`."""
    return await replays.replay_many(call.context.database, call.body, tenant=call.tenant, by=call.caller.name)


@table.route("POST", DEAD_LETTERS + ":dismiss", scope=SCOPE, body=wire.DismissMany, response=wire.Dismissed)
async def dismiss_many(call: Call) -> wire.Dismissed:
    """Dismiss many dead letters for one reason; `dry_run` only counts them."""
    return await intake.dismiss_many(call.context.database, call.body, tenant=call.tenant, by=call.caller.name)


@table.route("GET", DEAD_LETTER, scope=SCOPE, response=wire.DeadLetter)
async def get(call: Call) -> wire.DeadLetter:
    """Get a dead letter with all its attempts."""
    return await dead_letter_views.get(call.context.database, await _id(call), tenant=call.tenant)


@table.route("PATCH", DEAD_LETTER, scope=SCOPE, body=wire.DeadLetterEdit, response=wire.DeadLetter)
async def edit(call: Call) -> wire.DeadLetter:
    """Set the note, or the parameters for a replay."""
    return await intake.edit(call.context.database, await _id(call), call.body, tenant=call.tenant, by=call.caller.name)


@table.route("POST", DEAD_LETTER + "/claim", scope=SCOPE, body=wire.DeadLetterClaimOne, response=wire.DeadLetter)
async def claim(call: Call) -> wire.DeadLetter:
    """Claim a dead letter; until the claim expires, other users cannot change it."""
    return await intake.claim_one(
        call.context.database, await _id(call), call.body.for_, tenant=call.tenant, by=call.caller.name
    )


@table.route("POST", DEAD_LETTER + "/release", scope=SCOPE, response=wire.DeadLetter)
async def release(call: Call) -> wire.DeadLetter:
    """Release the claim on a dead letter."""
    return await intake.release(call.context.database, await _id(call), tenant=call.tenant, by=call.caller.name)


@table.route("POST", DEAD_LETTER + "/replay", scope=SCOPE, body=wire.ReplayOne, response=wire.Replay, creates=True)
async def replay(call: Call) -> wire.Replay:
    """Replay a dead letter as an execution; repeated requests return the same one."""
    return await replays.replay_one(
        call.context.database, await _id(call), call.body, tenant=call.tenant, by=call.caller.name
    )


@table.route("POST", DEAD_LETTER + "/dismiss", scope=SCOPE, body=wire.Dismiss, response=wire.DeadLetter)
async def dismiss(call: Call) -> wire.DeadLetter:
    """Dismiss a dead letter."""
    return await intake.dismiss(
        call.context.database, await _id(call), reason=call.body.reason, tenant=call.tenant, by=call.caller.name
    )


async def _id(call: Call) -> UUID:
    return await dead_letter_views.find(call.context.database, call.path("ref"), tenant=call.tenant)
