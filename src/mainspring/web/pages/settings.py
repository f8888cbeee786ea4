"""What is set up once: tokens, calendars, blackouts, and the way to channels."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.api.auth import issue_token
from mainspring.clock import instant
from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import NotFound, invalid
from mainspring.intake import blackouts, calendars
from mainspring.store import audit, tokens
from mainspring.store.db import database_now_ms
from mainspring.views import refs
from mainspring.web import render
from mainspring.web.access import Visit
from mainspring.web.render import page

SCOPES = {
    "read": "see everything of the tenant",
    "write": "make, change and run jobs",
    "operate": "replay and dismiss what failed",
    "admin": "everything, tokens too",
    "worker": "execute, and nothing else",
}
MOST_TOKENS = 500
MAX_NAME = 100
LONGEST_S = 10 * 366 * 86_400


async def settings(visit: Visit) -> Response:
    return await _page(visit)


async def create_token(visit: Visit) -> Response:
    """The page that follows is the only one that ever shows the token."""
    name = visit.form.get("name", "").strip()
    scopes = tuple(scope for scope in SCOPES if visit.form.get(f"scope_{scope}"))
    if not name or len(name) > MAX_NAME:
        raise invalid("/name", "a token needs a name", hint=f"1 to {MAX_NAME} characters that say who uses it")
    if not scopes:
        raise invalid("/scopes", "a token needs at least one scope", hint=", ".join(SCOPES))
    lasts_s = _lasts(visit.form.get("expires", "").strip())
    quota = visit.form.get("quota", "").strip()
    if quota and not (quota.isdecimal() and len(quota) < 10):
        raise invalid(
            "/quota", f"{quota!r} is not a number of schedules", hint="such as 100; empty: as the server says"
        )
    async with visit.context.database.transaction() as connection:
        now_ms = await database_now_ms(connection)
        expires_at = None if lasts_s is None else instant(now_ms) + timedelta(seconds=lasts_s)
        made = await issue_token(
            connection,
            tenant=visit.caller.tenant,
            name=name,
            scopes=scopes,
            expires_at=expires_at,
            by=visit.caller.name,
            schedule_quota=int(quota) if quota else None,
        )
    return await _page(visit, made=made, made_name=name)


async def revoke_token(visit: Visit) -> Response:
    if not refs.is_id(visit.ref):
        raise NotFound(f"there is no token {visit.ref!r}")
    token_id = UUID(visit.ref)
    async with visit.context.database.transaction() as connection:
        name = await tokens.revoke_token(connection, tenant=visit.caller.tenant, token_id=token_id)
        if name is None:
            raise NotFound("there is no such token; it may be revoked already")
        await audit.record(
            connection, "token.revoke", token_id, tenant=visit.caller.tenant, by=visit.caller.name, name=name
        )
    return RedirectResponse("/settings#tokens", 303, render.HEADERS)


async def add_blackout(visit: Visit) -> Response:
    """From now on, for a while; windows that come again are for the command line."""
    form = {name: value.strip() for name, value in visit.form.items()}
    lasts_s = _lasts(form.get("lasts", ""))
    if lasts_s is None:
        raise invalid("/lasts", "say how long it lasts", hint="for example 2h or 30m")
    async with visit.context.database.connection() as connection:
        start = instant(await database_now_ms(connection)) + timedelta(seconds=1)
    request = wire.NewBlackout(
        start_at=start,
        end_at=start + timedelta(seconds=lasts_s),
        queue=form.get("queue") or None,
        job=form.get("job") or None,
        reason=form.get("reason", "")[:1000],
    )
    await blackouts.create(visit.context.database, request, tenant=visit.caller.tenant, by=visit.caller.name)
    return RedirectResponse("/settings#blackouts", 303, render.HEADERS)


async def end_blackout(visit: Visit) -> Response:
    await blackouts.delete(visit.context.database, visit.ref, tenant=visit.caller.tenant, by=visit.caller.name)
    return RedirectResponse("/settings#blackouts", 303, render.HEADERS)


async def _page(visit: Visit, *, made: str = "", made_name: str = "") -> Response:
    database, tenant = visit.context.database, visit.caller.tenant
    known = []
    if visit.caller.may("admin"):
        async with database.connection() as connection:
            known = await tokens.list_tokens(connection, tenant=tenant, limit=MOST_TOKENS)
    days = await calendars.list_all(database, tenant=tenant)
    windows = await blackouts.list_all(database, tenant=tenant)
    return page(
        "settings.html",
        visit.caller,
        tokens=known,
        scopes=SCOPES,
        calendars=days.items,
        blackouts=windows.items,
        made=made,
        made_name=made_name,
    )


def _lasts(text: str) -> float | None:
    """A duration, or none."""
    if not text:
        return None
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise invalid("/expires", str(error), hint="for example 2h, 90d; empty for never") from None
    if not 1 <= seconds <= LONGEST_S:
        raise invalid("/expires", f"{text!r} is too short or too long", hint="from a second to ten years")
    return seconds
