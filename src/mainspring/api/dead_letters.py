"""Dead letters over HTTP, for those who may operate."""

from __future__ import annotations

from uuid import UUID

from mainspring import wire
from mainspring.api.route import Call, Table
from mainspring.intake import dead_letters as intake
from mainspring.intake import replays

table = Table()
DEAD_LETTERS = "/api/v1/dead-letters"
DEAD_LETTER = DEAD_LETTERS + "/{ref}"
SCOPE = "operate"


@table.route(
    "GET",
    DEAD_LETTERS,
    scope=SCOPE,
    answer=wire.Page[wire.DeadLetter],
    query=("job", "fingerprint", "state", "limit", "cursor"),
)
async def list_dead_letters(call: Call) -> wire.Page[wire.DeadLetter]:
    """List executions that failed or were lost for good, newest fire first."""
    return await intake.list_dead_letters(
        call.context.database,
        tenant=call.tenant,
        cursor=call.query("cursor"),
        limit=call.number("limit", 50),
        job=call.query("job"),
        fingerprint=call.query("fingerprint"),
        states=call.request.query_params.getlist("state"),
    )


@table.route(
    "GET", DEAD_LETTERS + ":groups", scope=SCOPE, answer=wire.Page[wire.DeadLetterGroup], query=("limit", "cursor")
)
async def list_groups(call: Call) -> wire.Page[wire.DeadLetterGroup]:
    """List what is open by job and fingerprint of the error."""
    return await intake.list_groups(
        call.context.database, tenant=call.tenant, cursor=call.query("cursor"), limit=call.number("limit", 100)
    )


@table.route("POST", DEAD_LETTERS + ":claim", scope=SCOPE, body=wire.DeadLetterClaim, answer=wire.Page[wire.DeadLetter])
async def claim_some(call: Call) -> wire.Page[wire.DeadLetter]:
    """Claim the oldest open ones that nobody has claimed; nobody else can change them for that time."""
    found = await intake.claim(call.context.database, call.body, tenant=call.tenant, by=call.caller.name)
    return wire.Page(items=found)


@table.route("POST", DEAD_LETTERS + ":replay", scope=SCOPE, body=wire.ReplayMany, answer=wire.Replay)
async def replay_many(call: Call) -> wire.Replay:
    """Replay many: at a rate, after a canary; `dry_run` only tells which."""
    return await replays.replay_many(call.context.database, call.body, tenant=call.tenant, by=call.caller.name)


@table.route("POST", DEAD_LETTERS + ":dismiss", scope=SCOPE, body=wire.DismissMany, answer=wire.Dismissed)
async def dismiss_many(call: Call) -> wire.Dismissed:
    """Dismiss many for one reason; `dry_run` only counts them."""
    return await intake.dismiss_many(call.context.database, call.body, tenant=call.tenant, by=call.caller.name)


@table.route("GET", DEAD_LETTER, scope=SCOPE, answer=wire.DeadLetter)
async def get(call: Call) -> wire.DeadLetter:
    """Get a dead letter with all its attempts."""
    return await intake.get(call.context.database, await _id(call), tenant=call.tenant)


@table.route("PATCH", DEAD_LETTER, scope=SCOPE, body=wire.DeadLetterEdit, answer=wire.DeadLetter)
async def edit(call: Call) -> wire.DeadLetter:
    """Write a note, or the parameters that a replay is given."""
    return await intake.edit(call.context.database, await _id(call), call.body, tenant=call.tenant, by=call.caller.name)


@table.route("POST", DEAD_LETTER + "/claim", scope=SCOPE, body=wire.DeadLetterClaimOne, answer=wire.DeadLetter)
async def claim(call: Call) -> wire.DeadLetter:
    """Claim a dead letter: nobody else can change it for that time."""
    return await intake.claim_one(
        call.context.database, await _id(call), call.body.for_, tenant=call.tenant, by=call.caller.name
    )


@table.route("POST", DEAD_LETTER + "/release", scope=SCOPE, answer=wire.DeadLetter)
async def release(call: Call) -> wire.DeadLetter:
    """Give a claimed dead letter back."""
    return await intake.release(call.context.database, await _id(call), tenant=call.tenant, by=call.caller.name)


@table.route("POST", DEAD_LETTER + "/replay", scope=SCOPE, body=wire.ReplayOne, answer=wire.Replay)
async def replay(call: Call) -> wire.Replay:
    """Replay a dead letter; asked for again, it is the same execution."""
    return await replays.replay_one(
        call.context.database, await _id(call), call.body, tenant=call.tenant, by=call.caller.name
    )


@table.route("POST", DEAD_LETTER + "/dismiss", scope=SCOPE, body=wire.Dismiss, answer=wire.DeadLetter)
async def dismiss(call: Call) -> wire.DeadLetter:
    """Dismiss a dead letter: nothing more is to be done about it."""
    return await intake.dismiss(
        call.context.database, await _id(call), reason=call.body.reason, tenant=call.tenant, by=call.caller.name
    )


async def _id(call: Call) -> UUID:
    return await intake.find(call.context.database, call.path("ref"), tenant=call.tenant)
