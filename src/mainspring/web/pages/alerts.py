"""Alerts with their rules and silences; notification channels with their deliveries."""

from __future__ import annotations

from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.alerts import channels as alert_channels
from mainspring.alerts import rules, silences
from mainspring.clock import instant
from mainspring.codec import decode, encode
from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import Conflict, Invalid, NotFound, Problem, invalid
from mainspring.web import render
from mainspring.web.endpoint import PageRequest, refuse_nul
from mainspring.web.forms.alert_rule import RuleForm, form_of, read_rule, seen_rule, submitted
from mainspring.web.forms.definition import problems_of
from mainspring.web.render import now, page

ALERTS_SHOWN = 50
DELIVERIES_SHOWN = 25
SILENCE_FIELDS = ("rule", "job", "lasts", "reason")


async def alerts(request: PageRequest) -> Response:
    """GET /alerts; `edit` opens the form of a rule, `rule` fills in the form that mutes alerts."""
    editing = None
    if name := request.query("edit"):
        editing = form_of(await _rule(request, name))
    return await _page(request, editing=editing)


async def _page(
    request: PageRequest,
    *,
    editing: RuleForm | None = None,
    silence: dict[str, str] | None = None,
    problems: dict[str, list[Problem]] | None = None,
    status: int = 200,
) -> Response:
    database, tenant = request.context.database, request.caller.tenant
    firing = await rules.list_alerts(database, tenant=tenant, state="firing", limit=ALERTS_SHOWN)
    pending = await rules.list_alerts(database, tenant=tenant, state="pending", limit=ALERTS_SHOWN)
    resolved = await rules.list_alerts(database, tenant=tenant, state="resolved", limit=ALERTS_SHOWN)
    all_rules = await rules.list_rules(database, tenant=tenant)
    silenced = await silences.list_all(database, tenant=tenant)
    offered: set[str] = set()
    if editing is not None:
        offered = {c.name for c in (await alert_channels.list_all(database, tenant=tenant)).items} | {*editing.chosen}
    return page(
        "alerts.html",
        request.caller,
        status=editing.status if editing is not None else status,
        firing=firing.items,
        pending=pending.items,
        resolved=resolved.items,
        rules=all_rules.items,
        silences=silenced.items,
        editing=editing,
        offered=sorted(offered),
        silence=silence or {"rule": request.query("rule") or "*", "lasts": "2h"},
        problems=problems or {},
    )


async def _rule(request: PageRequest, name: str) -> wire.AlertRule:
    found = await rules.list_rules(request.context.database, tenant=request.caller.tenant)
    for rule in found.items:
        if rule.name == name:
            return rule
    raise NotFound(f"there is no alert rule {name[:80]!r}")


async def save_rule(request: PageRequest) -> Response:
    """POST /alerts/rules/{ref}: write a rule, or show its form again with the errors beside the fields."""
    found = await _rule(request, request.ref)
    form = submitted(found, request.form)
    try:
        refuse_nul(request.form)
        rule, seen = read_rule(found, form), seen_rule(form.seen)
        await rules.put_rule(
            request.context.database, found.name, rule, tenant=request.caller.tenant, by=request.caller.name, seen=seen
        )
    except Invalid as error:
        form.refuse(error)
        return await _page(request, editing=form)
    except Conflict as error:
        current = await _rule(request, request.ref)
        form.seen = form_of(current).seen
        form.refuse(error)
        form.problems.append(Problem("", f"{current.updated_by or 'built-in'} set: {current.means}"))
        return await _page(request, editing=form)
    return _to_rule(found.name)


async def reset_rule(request: PageRequest) -> Response:
    """POST /alerts/rules/{ref}/reset: give a built-in rule its defaults back; delete one of the tenant."""
    await rules.delete_rule(request.context.database, request.ref, tenant=request.caller.tenant, by=request.caller.name)
    return _to_rule(request.ref)


def _to_rule(name: str) -> Response:
    return RedirectResponse(f"/alerts#rule-{quote(name)}", 303, render.HEADERS)


async def channels(request: PageRequest) -> Response:
    """GET /channels."""
    return await _channels(request, None, None)


async def test_channel(request: PageRequest) -> Response:
    """POST /channels/{ref}/test: send a test message and show the result."""
    sent = await alert_channels.test(
        request.context.database, request.context.sender, request.ref, tenant=request.caller.tenant
    )
    return await _channels(request, request.ref, sent)


async def enable_channel(request: PageRequest) -> Response:
    """POST /channels/{ref}/enable."""
    await alert_channels.enable(
        request.context.database, request.ref, tenant=request.caller.tenant, by=request.caller.name
    )
    return RedirectResponse("/channels", 303, render.HEADERS)


async def add_silence(request: PageRequest) -> Response:
    """POST /silences; errors are shown in the form."""
    try:
        refuse_nul(request.form)
        await _add_silence(request)
    except Invalid as error:
        problems: dict[str, list[Problem]] = {}
        for problem in problems_of(error):
            name = problem.pointer.rpartition("/")[2]
            name = {"end_at": "lasts"}.get(name, name)
            problems.setdefault(name if name in SILENCE_FIELDS else "", []).append(problem)
        values = {name: request.form.get(name, "") for name in SILENCE_FIELDS}
        return await _page(request, silence=values, problems=problems, status=422)
    return RedirectResponse("/alerts#silences", 303, render.HEADERS)


async def _add_silence(request: PageRequest) -> None:
    matchers = {name: value for name in ("rule", "job", "queue") if (value := request.form.get(name, "").strip())}
    try:
        duration_s = parse_duration(request.form.get("lasts", "").strip())
    except ValueError as error:
        raise invalid("/lasts", str(error), hint="write for example 2h or 30m") from None
    until = instant(now().timestamp() * 1000 + duration_s * 1000)
    asked = {"matchers": matchers, "end_at": until, "reason": request.form.get("reason", "").strip()}
    wanted = decode(encode(asked), wire.NewSilence)
    await silences.create(request.context.database, wanted, tenant=request.caller.tenant, by=request.caller.name)


async def end_silence(request: PageRequest) -> Response:
    """POST /silences/{ref}/delete."""
    await silences.delete(request.context.database, request.ref, tenant=request.caller.tenant, by=request.caller.name)
    return RedirectResponse("/alerts#silences", 303, render.HEADERS)


async def _channels(request: PageRequest, tested: str | None, result: wire.ChannelTest | None) -> Response:
    database, tenant = request.context.database, request.caller.tenant
    found = await alert_channels.list_all(database, tenant=tenant)
    sent = await alert_channels.deliveries(database, tenant=tenant, limit=DELIVERIES_SHOWN)
    return page(
        "channels.html", request.caller, channels=found.items, deliveries=sent.items, tested=tested, result=result
    )
