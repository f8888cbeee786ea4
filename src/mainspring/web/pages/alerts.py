"""Alerts and channels as pages: what fires, by which rules, what is held back, who is told and what became of it."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.alerts import channels as told
from mainspring.alerts import rules, silences
from mainspring.clock import instant
from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import invalid
from mainspring.web import render
from mainspring.web.access import Visit
from mainspring.web.render import now, page

SHOWN = 50
DELIVERIES_SHOWN = 25
MAX_REASON = 1000


async def alerts(visit: Visit) -> Response:
    database, tenant = visit.context.database, visit.caller.tenant
    firing = await rules.list_alerts(database, tenant=tenant, state="firing", limit=SHOWN)
    pending = await rules.list_alerts(database, tenant=tenant, state="pending", limit=SHOWN)
    past = await rules.list_alerts(database, tenant=tenant, state="resolved", limit=SHOWN)
    known = await rules.list_rules(database, tenant=tenant)
    held = await silences.list_all(database, tenant=tenant)
    return page(
        "alerts.html",
        visit.caller,
        firing=firing.items,
        pending=pending.items,
        past=past.items,
        rules=known.items,
        silences=held.items,
        rule=visit.query("rule"),
    )


async def channels(visit: Visit) -> Response:
    return await _channels(visit, None, None)


async def try_channel(visit: Visit) -> Response:
    """Sends a test message; the page that follows shows what came back."""
    sent = await told.test(visit.context.database, visit.context.sender, visit.ref, tenant=visit.caller.tenant)
    return await _channels(visit, visit.ref, sent)


async def enable_channel(visit: Visit) -> Response:
    await told.enable(visit.context.database, visit.ref, tenant=visit.caller.tenant, by=visit.caller.name)
    return RedirectResponse("/channels", 303, render.HEADERS)


async def add_silence(visit: Visit) -> Response:
    matchers = {name: value for name in ("rule", "job", "queue") if (value := visit.form.get(name, "").strip())}
    try:
        lasts_s = parse_duration(visit.form.get("lasts", "").strip())
    except ValueError as error:
        raise invalid("/lasts", str(error), hint="for example 2h or 30m") from None
    until = instant(now().timestamp() * 1000 + lasts_s * 1000)
    reason = visit.form.get("reason", "").strip()[:MAX_REASON]
    request = wire.NewSilence(matchers=matchers, end_at=until, reason=reason)
    await silences.create(visit.context.database, request, tenant=visit.caller.tenant, by=visit.caller.name)
    return RedirectResponse("/alerts#silences", 303, render.HEADERS)


async def end_silence(visit: Visit) -> Response:
    await silences.delete(visit.context.database, visit.ref, tenant=visit.caller.tenant, by=visit.caller.name)
    return RedirectResponse("/alerts#silences", 303, render.HEADERS)


async def _channels(visit: Visit, tried: str | None, answer: wire.ChannelTest | None) -> Response:
    database, tenant = visit.context.database, visit.caller.tenant
    found = await told.list_all(database, tenant=tenant)
    sent = await told.deliveries(database, tenant=tenant, limit=DELIVERIES_SHOWN)
    return page("channels.html", visit.caller, channels=found.items, deliveries=sent.items, tried=tried, answer=answer)
