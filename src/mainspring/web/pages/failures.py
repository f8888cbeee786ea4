"""What failed for good and waits for a person: groups of dead letters, one of them, and what can be done about it."""

from __future__ import annotations

from urllib.parse import quote

import msgspec
from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.domain.dead_letter import DEAD_LETTER_STATES
from mainspring.domain.errors import invalid
from mainspring.intake import dead_letters, replays
from mainspring.web import render
from mainspring.web.access import Visit, own_path
from mainspring.web.pages.jobs import link

SCOPE = "operate"
SHOWN = 50
MOST = 10_000


async def failures(visit: Visit) -> Response:
    """Groups; with a job, a fingerprint or a state, the letters of that."""
    database, tenant = visit.context.database, visit.caller.tenant
    job, fingerprint, state = visit.query("job"), visit.query("fingerprint"), visit.query("state")
    cursor = visit.query("cursor") or None
    chosen = {"job": job, "fingerprint": fingerprint, "state": state}
    tabs = [("Open, in groups", "/failures", not any(chosen.values()))] + [
        (name.capitalize(), link("/failures", state=name), state == name and not job) for name in DEAD_LETTER_STATES
    ]
    if not any(chosen.values()):
        groups = await dead_letters.list_groups(database, tenant=tenant, cursor=cursor, limit=SHOWN)
        onward = groups.next_cursor and link("/failures", cursor=groups.next_cursor)
        return render.page(
            "failures.html",
            visit.caller,
            groups=groups.items,
            letters=None,
            tabs=tabs,
            chosen=chosen,
            onward=onward,
            first="/failures",
            cursor=cursor,
        )
    found = await dead_letters.list_dead_letters(
        database,
        tenant=tenant,
        cursor=cursor,
        limit=SHOWN,
        job=job or None,
        fingerprint=fingerprint or None,
        states=[state or "open"],
    )
    onward = found.next_cursor and link("/failures", **chosen, cursor=found.next_cursor)
    return render.page(
        "failures.html",
        visit.caller,
        groups=None,
        letters=found.items,
        tabs=tabs,
        chosen=chosen,
        onward=onward,
        first=link("/failures", **chosen),
        cursor=cursor,
    )


async def failure(visit: Visit) -> Response:
    """One dead letter."""
    letter_id = await dead_letters.find(visit.context.database, visit.ref, tenant=visit.caller.tenant)
    letter = await dead_letters.get(visit.context.database, letter_id, tenant=visit.caller.tenant)
    claimed = letter.claimed_until is not None and letter.claimed_until > render.now()
    params = letter.new_params if letter.new_params is not None else letter.params
    return render.page("failure.html", visit.caller, letter=letter, claimed=claimed, params=params)


async def plan(visit: Visit) -> Response:
    """What replaying a group would do; the button below does it."""
    request = _many(visit.query("job"), visit.query("fingerprint"), visit.query("rate"), visit.query("canary"))
    found = await replays.replay_many(
        visit.context.database,
        msgspec.structs.replace(request, dry_run=True),
        tenant=visit.caller.tenant,
        by=visit.caller.name,
    )
    return render.page("replay.html", visit.caller, plan=found, request=request)


async def replay_group(visit: Visit) -> Response:
    form = visit.form
    request = _many(form.get("job", ""), form.get("fingerprint", ""), form.get("rate", ""), form.get("canary", ""))
    await replays.replay_many(visit.context.database, request, tenant=visit.caller.tenant, by=visit.caller.name)
    return RedirectResponse(link("/failures", state="replaying"), 303, render.HEADERS)


async def dismiss_group(visit: Visit) -> Response:
    request = wire.DismissMany(
        job=visit.form.get("job") or None,
        fingerprint=visit.form.get("fingerprint") or None,
        limit=MOST,
        reason=visit.form.get("reason", "")[:1000],
    )
    await dead_letters.dismiss_many(visit.context.database, request, tenant=visit.caller.tenant, by=visit.caller.name)
    return RedirectResponse("/failures", 303, render.HEADERS)


async def claim(visit: Visit) -> Response:
    letter_id = await dead_letters.find(visit.context.database, visit.ref, tenant=visit.caller.tenant)
    await dead_letters.claim_one(
        visit.context.database, letter_id, "10m", tenant=visit.caller.tenant, by=visit.caller.name
    )
    return _back(visit)


async def release(visit: Visit) -> Response:
    letter_id = await dead_letters.find(visit.context.database, visit.ref, tenant=visit.caller.tenant)
    await dead_letters.release(visit.context.database, letter_id, tenant=visit.caller.tenant, by=visit.caller.name)
    return _back(visit)


async def note(visit: Visit) -> Response:
    letter_id = await dead_letters.find(visit.context.database, visit.ref, tenant=visit.caller.tenant)
    edit = wire.DeadLetterEdit(note=visit.form.get("note", "")[:4000])
    await dead_letters.edit(visit.context.database, letter_id, edit, tenant=visit.caller.tenant, by=visit.caller.name)
    return _back(visit)


async def replay(visit: Visit) -> Response:
    """Ends at the execution that was made."""
    letter_id = await dead_letters.find(visit.context.database, visit.ref, tenant=visit.caller.tenant)
    letter = await dead_letters.get(visit.context.database, letter_id, tenant=visit.caller.tenant)
    request = wire.ReplayOne(params=_params(visit.form.get("params", ""), letter))
    made = await replays.replay_one(
        visit.context.database, letter_id, request, tenant=visit.caller.tenant, by=visit.caller.name
    )
    return RedirectResponse(f"/executions/{made.items[0].execution_id}", 303, render.HEADERS)


async def dismiss(visit: Visit) -> Response:
    letter_id = await dead_letters.find(visit.context.database, visit.ref, tenant=visit.caller.tenant)
    await dead_letters.dismiss(
        visit.context.database,
        letter_id,
        reason=visit.form.get("reason", "")[:1000],
        tenant=visit.caller.tenant,
        by=visit.caller.name,
    )
    return _back(visit)


def _many(job: str, fingerprint: str, rate: str, canary: str) -> wire.ReplayMany:
    return wire.ReplayMany(
        job=job or None, fingerprint=fingerprint or None, rate=rate or None, canary=bool(canary), limit=MOST
    )


def _params(text: str, letter: wire.DeadLetter) -> dict[str, object] | None:
    """The parameters as they were typed; None if they say what they said."""
    if not text.strip():
        return None if letter.params is None and letter.new_params is None else {}
    try:
        found = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise invalid("/params", f"the parameters are not a JSON object: {error}", hint='such as {"n": 5}') from None
    return None if found == letter.params and letter.new_params is None else found


def _back(visit: Visit) -> Response:
    return RedirectResponse(own_path(visit.form.get("back", ""), f"/failures/{quote(visit.ref)}"), 303, render.HEADERS)
