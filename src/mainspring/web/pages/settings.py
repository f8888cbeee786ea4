"""Settings: API tokens, browser sessions, calendars and blackouts."""

from __future__ import annotations

from datetime import timedelta

from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.api.browser_sessions import end_all, end_one, sessions_of
from mainspring.api.tokens import issue_for, revoke_one
from mainspring.clock import instant
from mainspring.domain.duration import MAX_S, parse_duration
from mainspring.domain.errors import invalid
from mainspring.domain.principal import check_token_name
from mainspring.domain.roles import BUILT_IN, SCOPES, includes, not_included
from mainspring.intake import blackouts
from mainspring.intake.roles import MAX_ROLES
from mainspring.store import roles, tokens
from mainspring.store.db import database_now_ms
from mainspring.views import blackouts as blackout_views
from mainspring.views import calendars as calendar_views
from mainspring.views import secrets as secret_views
from mainspring.web import render
from mainspring.web.endpoint import PageRequest
from mainspring.web.render import page
from mainspring.web.urls import local_path

MAX_TOKENS_SHOWN = 500
MAX_SECRETS_SHOWN = 500
LONGEST_S = 10 * 366 * 86_400


async def settings(request: PageRequest) -> Response:
    """GET /settings."""
    return await _page(request)


async def create_token(request: PageRequest) -> Response:
    """POST /settings/tokens: the response is the only page that ever shows the token."""
    form = {name: value.strip() for name, value in request.form.items()}
    check_token_name(form.get("name", ""))
    quota = form.get("quota", "")
    if quota and not (quota.isdecimal() and len(quota) < 10):
        raise invalid(
            "/quota", f"{quota!r} is not a number of schedules", hint="such as 100; empty for the server's default"
        )
    wanted = wire.NewToken(
        name=form["name"],
        role=form.get("role") or None,
        scopes=[scope for scope in SCOPES if form.get(f"scope_{scope}")],
        queues=_listed(form.get("queues", "")),
        labels=_listed(form.get("labels", "")),
        expires_in=form.get("expires") or None,
        schedule_quota=int(quota) if quota else None,
    )
    made = await issue_for(request.context, request.caller, wanted, tenant=request.caller.tenant)
    return await _page(request, new_token=made.token, new_token_name=made.name)


async def revoke_token(request: PageRequest) -> Response:
    """POST /settings/tokens/{ref}/revoke."""
    await revoke_one(request.context, request.caller, request.ref)
    return RedirectResponse("/settings#tokens", 303, render.HEADERS)


async def end_session(request: PageRequest) -> Response:
    """POST /settings/sessions/{ref}/end."""
    await end_one(request.context, request.caller, request.ref)
    return RedirectResponse("/settings#sessions", 303, render.HEADERS)


async def end_other_sessions(request: PageRequest) -> Response:
    """POST /settings/sessions/end-others: all sessions of the caller's token except this one."""
    await end_all(request.context, request.caller)
    return RedirectResponse("/settings#sessions", 303, render.HEADERS)


async def add_blackout(request: PageRequest) -> Response:
    """POST /settings/blackouts: starts now. Recurring blackouts are created with the command line."""
    form = {name: value.strip() for name, value in request.form.items()}
    duration_s = _duration(form.get("lasts", ""))
    if duration_s is None:
        raise invalid("/lasts", "a duration is required", hint="for example 2h or 30m")
    async with request.context.database.connection() as connection:
        start = instant(await database_now_ms(connection)) + timedelta(seconds=1)
    wanted = wire.NewBlackout(
        start_at=start,
        end_at=start + timedelta(seconds=duration_s),
        queue=form.get("queue") or None,
        job=form.get("job") or None,
        reason=form.get("reason", "")[:1000],
    )
    await blackouts.create(request.context.database, wanted, tenant=request.caller.tenant, by=request.caller.name)
    return RedirectResponse("/settings#blackouts", 303, render.HEADERS)


async def end_blackout(request: PageRequest) -> Response:
    """POST /settings/blackouts/{ref}/end."""
    await blackouts.delete(request.context.database, request.ref, tenant=request.caller.tenant, by=request.caller.name)
    back = local_path(request.form.get("back", ""), "/settings")
    return RedirectResponse(f"{back}#blackouts" if back == "/settings" else back, 303, render.HEADERS)


async def _page(request: PageRequest, *, new_token: str = "", new_token_name: str = "") -> Response:
    database, tenant = request.context.database, request.caller.tenant
    all_tokens, own_roles = [], []
    if request.caller.may("tokens"):
        async with database.connection() as connection:
            all_tokens = await tokens.list_tokens(connection, tenant=tenant, limit=MAX_TOKENS_SHOWN)
            own_roles = await roles.list_roles(connection, tenant=tenant, limit=MAX_ROLES)
    known = {role.name: role.scopes for role in BUILT_IN.values()} | {role.name: role.scopes for role in own_roles}
    days = await calendar_views.list_calendars(database, tenant=tenant)
    windows = await blackout_views.list_blackouts(database, tenant=tenant)
    return page(
        "settings.html",
        request.caller,
        tokens=all_tokens,
        sessions=await sessions_of(request.context, request.caller),
        scopes={scope: means for scope, means in SCOPES.items() if includes(request.caller.held, scope)},
        roles=[name for name, held in known.items() if not not_included(held, request.caller.held)],
        calendars=days.items,
        blackouts=windows.items,
        secrets=(await secret_views.list_secrets(database, tenant=tenant, limit=MAX_SECRETS_SHOWN)).items,
        has_key=request.context.vault.has_key,
        new_token=new_token,
        new_token_name=new_token_name,
    )


def _listed(text: str) -> list[str]:
    """The parts of a list with commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _duration(text: str) -> float | None:
    """Parse a duration; None if empty."""
    if not text:
        return None
    try:
        seconds = min(parse_duration(text), MAX_S)
    except ValueError as error:
        raise invalid("/expires", str(error), hint="for example 2h, 90d; empty for never") from None
    if not 1 <= seconds <= LONGEST_S:
        raise invalid("/expires", f"{text!r} is out of range", hint="from one second to ten years")
    return seconds
