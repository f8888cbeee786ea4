"""Dead letters: groups, lists and single ones; claim, note, replay and dismiss."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec
from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.calculation import calculated
from mainspring.display.recovery import commands_for
from mainspring.domain.dead_letter import DEAD_LETTER_STATES
from mainspring.domain.errors import NotFound, invalid
from mainspring.intake import dead_letters, replays
from mainspring.views import dead_letters as dead_letter_views
from mainspring.views import jobs as job_views
from mainspring.views import logs as log_views
from mainspring.web import render
from mainspring.web.draw.diff import DiffLine, difference
from mainspring.web.endpoint import PageRequest
from mainspring.web.urls import link, local_path

SCOPE = "operate"
ROWS_SHOWN = 50
MAX_LETTERS = 10_000
"""Dead letters that one replay or dismissal of a group takes."""
CLAIM_DURATION = "1h"
MAX_CLAIMED = 100
"""Dead letters that one click assigns."""
SIMILAR_SHOWN = 5
TAIL_BYTES = 4_000
"""How much of the log the page of a failure shows."""
REPLAY_FIELDS = ("job", "fingerprint", "rate", "canary")


async def failures(request: PageRequest) -> Response:
    """GET /failures: groups; with `job`, `fingerprint` or `state`, the dead letters that match."""
    database, tenant = request.context.database, request.caller.tenant
    job, fingerprint, state = request.query("job"), request.query("fingerprint"), request.query("state")
    cursor = request.query("cursor") or None
    chosen = {"job": job, "fingerprint": fingerprint, "state": state}
    tabs = [("Open (grouped)", "/failures", not any(chosen.values()))] + [
        (name.capitalize(), link("/failures", state=name), state == name and not job) for name in DEAD_LETTER_STATES
    ]
    if not any(chosen.values()):
        groups = await dead_letter_views.list_groups(database, tenant=tenant, cursor=cursor, limit=ROWS_SHOWN)
        next_page = groups.next_cursor and link("/failures", cursor=groups.next_cursor)
        return render.page(
            "failures.html",
            request.caller,
            groups=groups.items,
            letters=None,
            tabs=tabs,
            chosen=chosen,
            next_page=next_page,
            first="/failures",
            cursor=cursor,
        )
    found = await dead_letter_views.list_dead_letters(
        database,
        tenant=tenant,
        cursor=cursor,
        limit=ROWS_SHOWN,
        job=job or None,
        fingerprint=fingerprint or None,
        states=[state or "open"],
    )
    next_page = found.next_cursor and link("/failures", **chosen, cursor=found.next_cursor)
    return render.page(
        "failures.html",
        request.caller,
        groups=None,
        letters=found.items,
        tabs=tabs,
        chosen=chosen,
        next_page=next_page,
        first=link("/failures", **chosen),
        cursor=cursor,
    )


async def failure(request: PageRequest) -> Response:
    """GET /failures/{ref}."""
    letter_id = await dead_letter_views.find(request.context.database, request.ref, tenant=request.caller.tenant)
    letter = await dead_letter_views.get(request.context.database, letter_id, tenant=request.caller.tenant)
    claimed = letter.claimed_until is not None and letter.claimed_until > render.now()
    params = letter.new_params if letter.new_params is not None else letter.params
    return render.page(
        "failure.html", request.caller, letter=letter, claimed=claimed, params=params, **await _around(request, letter)
    )


async def _around(request: PageRequest, letter: wire.DeadLetter) -> dict[str, Any]:
    """Return the evidence: the last output, the change before the failure, similar failures, and the run of a step."""
    database, tenant = request.context.database, request.caller.tenant
    try:
        logs, more = await log_views.read_logs_before(database, letter.dead_letter_id, tenant=tenant, size=TAIL_BYTES)
    except NotFound:  # retention has deleted the execution
        logs, more = wire.Logs(chunks=[], place="", complete=True), False
    similar: list[wire.DeadLetter] = []
    if letter.trigger != "step":  # the definitions of steps are not jobs that can be named
        found = await dead_letter_views.list_dead_letters(
            database, tenant=tenant, job=str(letter.job_id), fingerprint=letter.fingerprint, limit=SIMILAR_SHOWN + 1
        )
        similar = [d for d in found.items if d.dead_letter_id != letter.dead_letter_id][:SIMILAR_SHOWN]
    step = None
    run_id = await request.context.run_views.run_of_execution(letter.dead_letter_id, tenant=tenant)
    if letter.trigger == "step" and run_id is not None:
        run = await request.context.run_views.get(run_id, tenant=tenant)
        step = next((s.name for s in run.steps if s.execution_id == letter.dead_letter_id), None)
    return {
        "logs": logs,
        "more_logs": more,
        "similar": similar,
        "change": await _change_before(request, letter),
        "run_id": run_id,
        "step": step,
        "commands": commands_for(letter, run_id, step),
    }


async def _change_before(request: PageRequest, letter: wire.DeadLetter) -> tuple[wire.Version, list[DiffLine]] | None:
    """Return the version that failed and its difference to the one before; None for a first version or a step."""
    if letter.trigger == "step" or letter.version < 2:
        return None
    found = await job_views.list_versions(
        request.context.database,
        str(letter.job_id),
        tenant=request.caller.tenant,
        cursor=str(letter.version + 1),
        limit=2,
    )
    if len(found.items) < 2 or found.items[0].version != letter.version:
        return None
    new, old = found.items
    return new, await calculated(difference, old.spec, new.spec)


async def replay_plan(request: PageRequest) -> Response:
    """GET /failures/plan: a dry run of the replay of a group."""
    wanted = _replay_request(
        request.query("job"), request.query("fingerprint"), request.query("rate"), request.query("canary")
    )
    found = await replays.replay_many(
        request.context.database,
        msgspec.structs.replace(wanted, dry_run=True),
        tenant=request.caller.tenant,
        by=request.caller.name,
    )
    return render.page("replay_plan.html", request.caller, plan=found, options=wanted)


async def replay_group(request: PageRequest) -> Response:
    """POST /failures/group/replay."""
    form = request.form
    wanted = _replay_request(
        form.get("job", ""), form.get("fingerprint", ""), form.get("rate", ""), form.get("canary", "")
    )
    await replays.replay_many(request.context.database, wanted, tenant=request.caller.tenant, by=request.caller.name)
    return RedirectResponse(link("/failures", state="replaying"), 303, render.HEADERS)


async def dismiss_group(request: PageRequest) -> Response:
    """POST /failures/group/dismiss."""
    wanted = wire.DismissMany(
        job=request.form.get("job") or None,
        fingerprint=request.form.get("fingerprint") or None,
        limit=MAX_LETTERS,
        reason=request.form.get("reason", "")[:1000],
    )
    await dead_letters.dismiss_many(
        request.context.database, wanted, tenant=request.caller.tenant, by=request.caller.name
    )
    return RedirectResponse("/failures", 303, render.HEADERS)


async def claim_group(request: PageRequest) -> Response:
    """POST /failures/group/claim: claim the open failures of a group for the caller."""
    wanted = wire.DeadLetterClaim(
        job=request.form.get("job") or None,
        fingerprint=request.form.get("fingerprint") or None,
        limit=MAX_CLAIMED,
        for_=CLAIM_DURATION,
    )
    await dead_letters.claim(request.context.database, wanted, tenant=request.caller.tenant, by=request.caller.name)
    return RedirectResponse("/failures", 303, render.HEADERS)


async def claim(request: PageRequest) -> Response:
    """POST /failures/{ref}/claim."""
    letter_id = await dead_letter_views.find(request.context.database, request.ref, tenant=request.caller.tenant)
    await dead_letters.claim_one(
        request.context.database, letter_id, CLAIM_DURATION, tenant=request.caller.tenant, by=request.caller.name
    )
    return _back(request)


async def release(request: PageRequest) -> Response:
    """POST /failures/{ref}/release."""
    letter_id = await dead_letter_views.find(request.context.database, request.ref, tenant=request.caller.tenant)
    await dead_letters.release(
        request.context.database, letter_id, tenant=request.caller.tenant, by=request.caller.name
    )
    return _back(request)


async def note(request: PageRequest) -> Response:
    """POST /failures/{ref}/note."""
    letter_id = await dead_letter_views.find(request.context.database, request.ref, tenant=request.caller.tenant)
    edit = wire.DeadLetterEdit(note=request.form.get("note", "")[:4000])
    await dead_letters.edit(
        request.context.database, letter_id, edit, tenant=request.caller.tenant, by=request.caller.name
    )
    return _back(request)


async def replay(request: PageRequest) -> Response:
    """POST /failures/{ref}/replay: redirect to the new execution."""
    letter_id = await dead_letter_views.find(request.context.database, request.ref, tenant=request.caller.tenant)
    letter = await dead_letter_views.get(request.context.database, letter_id, tenant=request.caller.tenant)
    wanted = wire.ReplayOne(params=_params(request.form.get("params", ""), letter))
    made = await replays.replay_one(
        request.context.database, letter_id, wanted, tenant=request.caller.tenant, by=request.caller.name
    )
    return RedirectResponse(f"/executions/{made.items[0].execution_id}", 303, render.HEADERS)


async def dismiss(request: PageRequest) -> Response:
    """POST /failures/{ref}/dismiss."""
    letter_id = await dead_letter_views.find(request.context.database, request.ref, tenant=request.caller.tenant)
    await dead_letters.dismiss(
        request.context.database,
        letter_id,
        reason=request.form.get("reason", "")[:1000],
        tenant=request.caller.tenant,
        by=request.caller.name,
    )
    return _back(request)


def _replay_request(job: str, fingerprint: str, rate: str, canary: str) -> wire.ReplayMany:
    return wire.ReplayMany(
        job=job or None, fingerprint=fingerprint or None, rate=rate or None, canary=bool(canary), limit=MAX_LETTERS
    )


def _params(text: str, letter: wire.DeadLetter) -> dict[str, object] | None:
    """Parse the submitted parameters; None if they are unchanged."""
    if not text.strip():
        return None if letter.params is None and letter.new_params is None else {}
    try:
        found = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise invalid("/params", f"the parameters are not a JSON object: {error}", hint='such as {"n": 5}') from None
    return None if found == letter.params and letter.new_params is None else found


def _back(request: PageRequest) -> Response:
    return RedirectResponse(
        local_path(request.form.get("back", ""), f"/failures/{quote(request.ref)}"), 303, render.HEADERS
    )
