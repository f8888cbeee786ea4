"""Settings: API tokens, calendars and blackouts."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.api.auth import issue_token
from mainspring.clock import instant
from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import NotFound, invalid
from mainspring.intake import blackouts
from mainspring.store import audit, tokens
from mainspring.store.db import database_now_ms
from mainspring.views import blackouts as blackout_views
from mainspring.views import calendars as calendar_views
from mainspring.views import refs
from mainspring.web import render
from mainspring.web.endpoint import PageRequest
from mainspring.web.render import page

SCOPES = {
    "read": "view everything of the tenant",
    "write": "create, change and run jobs",
    "operate": "replay and dismiss dead letters, read the audit log",
    "admin": "everything, including tokens",
    "worker": "execute only",
}
MAX_TOKENS_SHOWN = 500
MAX_NAME_CHARS = 100
LONGEST_S = 10 * 366 * 86_400


async def settings(request: PageRequest) -> Response:
    """GET /settings."""
    return await _page(request)


async def create_token(request: PageRequest) -> Response:
    """POST /settings/tokens: the response is the only page that ever shows the token."""
    name = request.form.get("name", "").strip()
    scopes = tuple(scope for scope in SCOPES if request.form.get(f"scope_{scope}"))
    if not name or len(name) > MAX_NAME_CHARS:
        raise invalid("/name", "a token needs a name", hint=f"1 to {MAX_NAME_CHARS} characters that say who uses it")
    if not scopes:
        raise invalid("/scopes", "a token needs at least one scope", hint=", ".join(SCOPES))
    duration_s = _duration(request.form.get("expires", "").strip())
    quota = request.form.get("quota", "").strip()
    if quota and not (quota.isdecimal() and len(quota) < 10):
        raise invalid(
            "/quota", f"{quota!r} is not a number of schedules", hint="such as 100; empty for the server's default"
        )
    async with request.context.database.transaction() as connection:
        now_ms = await database_now_ms(connection)
        expires_at = None if duration_s is None else instant(now_ms) + timedelta(seconds=duration_s)
        new_token = await issue_token(
            connection,
            tenant=request.caller.tenant,
            name=name,
            scopes=scopes,
            expires_at=expires_at,
            by=request.caller.name,
            schedule_quota=int(quota) if quota else None,
        )
    return await _page(request, new_token=new_token, new_token_name=name)


async def revoke_token(request: PageRequest) -> Response:
    """POST /settings/tokens/{ref}/revoke."""
    if not refs.is_id(request.ref):
        raise NotFound(f"there is no token {request.ref!r}")
    token_id = UUID(request.ref)
    async with request.context.database.transaction() as connection:
        name = await tokens.revoke_token(connection, tenant=request.caller.tenant, token_id=token_id)
        if name is None:
            raise NotFound("unknown token; it may already be revoked")
        await audit.record(
            connection, "token.revoke", token_id, tenant=request.caller.tenant, by=request.caller.name, name=name
        )
    return RedirectResponse("/settings#tokens", 303, render.HEADERS)


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
    return RedirectResponse("/settings#blackouts", 303, render.HEADERS)


async def _page(request: PageRequest, *, new_token: str = "", new_token_name: str = "") -> Response:
    database, tenant = request.context.database, request.caller.tenant
    all_tokens = []
    if request.caller.may("admin"):
        async with database.connection() as connection:
            all_tokens = await tokens.list_tokens(connection, tenant=tenant, limit=MAX_TOKENS_SHOWN)
    days = await calendar_views.list_calendars(database, tenant=tenant)
    windows = await blackout_views.list_blackouts(database, tenant=tenant)
    return page(
        "settings.html",
        request.caller,
        tokens=all_tokens,
        scopes=SCOPES,
        calendars=days.items,
        blackouts=windows.items,
        new_token=new_token,
        new_token_name=new_token_name,
    )


def _duration(text: str) -> float | None:
    """Parse a duration; None if empty."""
    if not text:
        return None
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise invalid("/expires", str(error), hint="for example 2h, 90d; empty for never") from None
    if not 1 <= seconds <= LONGEST_S:
        raise invalid("/expires", f"{text!r} is out of range", hint="from one second to ten years")
    return seconds
