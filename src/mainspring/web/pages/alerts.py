"""Alerts with their rules and silences; notification channels with their deliveries."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.alerts import channels as alert_channels
from mainspring.alerts import rules, silences
from mainspring.clock import instant
from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import invalid
from mainspring.web import render
from mainspring.web.endpoint import PageRequest
from mainspring.web.render import now, page

ALERTS_SHOWN = 50
DELIVERIES_SHOWN = 25
MAX_REASON_CHARS = 1000


async def alerts(request: PageRequest) -> Response:
    """GET /alerts."""
    database, tenant = request.context.database, request.caller.tenant
    firing = await rules.list_alerts(database, tenant=tenant, state="firing", limit=ALERTS_SHOWN)
    pending = await rules.list_alerts(database, tenant=tenant, state="pending", limit=ALERTS_SHOWN)
    resolved = await rules.list_alerts(database, tenant=tenant, state="resolved", limit=ALERTS_SHOWN)
    all_rules = await rules.list_rules(database, tenant=tenant)
    silenced = await silences.list_all(database, tenant=tenant)
    return page(
        "alerts.html",
        request.caller,
        firing=firing.items,
        pending=pending.items,
        resolved=resolved.items,
        rules=all_rules.items,
        silences=silenced.items,
        rule=request.query("rule"),
    )


async def channels(request: PageRequest) -> Response:
    """GET /channels."""
    return await _channels(request, None, None)


async def test_channel(request: PageRequest) -> Response:
    """POST /channels/{ref}/test: send a test message and show the result."""
    context = request.context
    sent = await alert_channels.test(
        context.database, context.vault, context.sender, request.ref, tenant=request.caller.tenant
    )
    return await _channels(request, request.ref, sent)


async def enable_channel(request: PageRequest) -> Response:
    """POST /channels/{ref}/enable."""
    await alert_channels.enable(
        request.context.database, request.ref, tenant=request.caller.tenant, by=request.caller.name
    )
    return RedirectResponse("/channels", 303, render.HEADERS)


async def add_silence(request: PageRequest) -> Response:
    """POST /silences."""
    matchers = {name: value for name in ("rule", "job", "queue") if (value := request.form.get(name, "").strip())}
    try:
        duration_s = parse_duration(request.form.get("lasts", "").strip())
    except ValueError as error:
        raise invalid("/lasts", str(error), hint="for example 2h or 30m") from None
    until = instant(now().timestamp() * 1000 + duration_s * 1000)
    reason = request.form.get("reason", "").strip()[:MAX_REASON_CHARS]
    wanted = wire.NewSilence(matchers=matchers, end_at=until, reason=reason)
    await silences.create(request.context.database, wanted, tenant=request.caller.tenant, by=request.caller.name)
    return RedirectResponse("/alerts#silences", 303, render.HEADERS)


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
