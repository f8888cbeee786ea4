"""Routes of tokens: issue, list, rotate and revoke them. A caller can only grant what it has itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from mainspring import wire
from mainspring.api.auth import TOKEN_CACHE_S, Caller, issue
from mainspring.api.context import Context
from mainspring.api.route import Call, Table
from mainspring.clock import instant
from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import Conflict, Forbidden, NotFound, Problem, invalid
from mainspring.domain.grants import ANY, WorkerGrants
from mainspring.domain.roles import check_scopes, effective_scopes
from mainspring.intake import users
from mainspring.intake.roles import refuse_more, scopes_of
from mainspring.store import audit, tokens
from mainspring.store.db import Connection, database_now_ms
from mainspring.store.tokens import NewToken, TokenLine
from mainspring.views import refs

table = Table()
TOKENS = "/api/v1/tokens"
SCOPE = "tokens"
LONGEST_S = 10 * 366 * 86_400
LONGEST_OVERLAP_S = 30 * 86_400
MAX_ISSUERS = 32


@table.route("POST", TOKENS, scope=SCOPE, body=wire.NewToken, response=wire.IssuedToken, status=201, creates=True)
async def create(call: Call) -> wire.IssuedToken:
    """Issue a token, with at most the rights of the caller. It is shown only in this response."""
    return await issue_for(call.context, call.caller, call.body, tenant=call.tenant)


@table.route("GET", TOKENS, scope=SCOPE, response=wire.Page[wire.Token], query=("limit", "cursor"))
async def list_tokens(call: Call) -> wire.Page[wire.Token]:
    """List the tokens of the tenant that are not revoked, newest first."""
    limit = call.number("limit", 100)
    refs.check_limit(limit)
    before = refs.time_cursor(call.query("cursor"))
    async with call.context.database.connection() as connection:
        found = await tokens.list_tokens(connection, tenant=call.tenant, limit=limit + 1, before=before)
    last = found[limit - 1] if len(found) > limit else None
    cursor = None if last is None else f"{last.created_at.isoformat()}_{last.token_id}"
    return wire.Page(items=[shown(line, call.caller) for line in found[:limit]], next_cursor=cursor)


@table.route(
    "POST",
    TOKENS + "/{ref}/rotate",
    scope=SCOPE,
    body=wire.RotateToken,
    response=wire.IssuedToken,
    status=201,
    creates=True,
)
async def rotate(call: Call) -> wire.IssuedToken:
    """Replace a token by a new one with the same rights and lifetime; the old one stays valid for `overlap`."""
    overlap_s = seconds_of(call.body.overlap, "/overlap", least=0, most=LONGEST_OVERLAP_S)
    async with call.context.database.transaction() as connection:
        old = await _changeable(connection, call.caller, call.path("ref"))
        if old.is_identity:
            raise Conflict("this token stands for a user of an issuer and has no secret", code="user_of_issuer")
        if not call.caller.may("admin") and old.person_id != call.caller.name.person_id:
            raise _not_own("this token belongs to another user: only an administrator or that user can rotate it")
        now = instant(await database_now_ms(connection))
        lifetime = None if old.expires_at is None else old.expires_at - old.created_at
        new = NewToken(
            old.name,
            old.scopes,
            old.role,
            old.principal_id,
            None if lifetime is None else now + lifetime,
            old.schedule_quota,
            old.grants,
            created_by=call.caller.name,
            delegated_by=old.delegated_by or (None if old.principal_id is not None else old.token_id),
            issuers=old.issuers,
            issued_by=old.issued_by,
        )
        new = _with_issuers(new, call.caller)
        token, token_id = await issue(connection, new, tenant=call.tenant, action="token.rotate")
        until = await tokens.replace_token(
            connection, tenant=call.tenant, token_id=old.token_id, by=token_id, overlap_s=overlap_s
        )
        if until is None:
            raise Conflict("the token has expired or was rotated already; issue a new one", code="not_valid")
    if overlap_s < TOKEN_CACHE_S:  # api processes look the old one up again in time otherwise
        call.context.streams.announce_end(old.token_id)
    return wire.IssuedToken(
        token=token,
        token_id=token_id,
        name=old.name,
        scopes=sorted(old.allowed),
        expires_at=new.expires_at,
        replaces=old.token_id,
        replaced_until=until,
    )


@table.route("DELETE", TOKENS + "/{ref}", scope=SCOPE, status=204)
async def revoke(call: Call) -> None:
    """Revoke a token; it stops working at once, and so do the browser sessions that were opened with it."""
    await revoke_one(call.context, call.caller, call.path("ref"))


async def issue_for(context: Context, caller: Caller, body: wire.NewToken, *, tenant: int) -> wire.IssuedToken:
    """Issue a token in a tenant, with at most the rights of the caller."""
    check_scopes(body.scopes)
    async with context.database.transaction() as connection:
        user = None if body.user is None else await users.known(connection, body.user, tenant=tenant)
        if user is not None:
            users.refuse_of_issuer(user, "it signs in there; create a service for a program")
        _refuse_impersonation(caller, body, None if user is None else user.principal_id)
        role = None if body.role is None else await scopes_of(connection, body.role, tenant=tenant)
        of_user = None if user is None else await scopes_of(connection, user.role, tenant=tenant)
        scopes = effective_scopes(body.scopes, role, of_user)
        if not scopes:
            raise invalid("/scopes", "a token needs a role or at least one scope", hint="such as role viewer")
        grants = _grants(body)
        refuse_more(scopes, caller.held, grants=grants, held_grants=caller.name.grants)
        new = NewToken(
            body.name,
            body.scopes,
            body.role,
            None if user is None else user.principal_id,
            await _expiry(connection, body.expires_in),
            body.schedule_quota,
            grants,
            created_by=caller.name,
            delegated_by=None if caller.may("admin") else caller.name.person_id,
        )
        new = _with_issuers(new, caller)
        token, token_id = await issue(connection, new, tenant=tenant)
    return wire.IssuedToken(
        token=token, token_id=token_id, name=body.name, scopes=sorted(scopes), expires_at=new.expires_at
    )


def _with_issuers(new: NewToken, caller: Caller) -> NewToken:
    """Record who knows the new token besides its user: the caller, unless it is the user, and who issued its token."""
    by = caller.name
    own = new.delegated_by or new.principal_id
    nearest = set() if own == by.person_id else {by.person_id}
    issuers = {*new.issuers, *by.issuers, *nearest} - {own}
    if len(issuers) > MAX_ISSUERS:
        message = f"the token was issued through {len(issuers)} others; {MAX_ISSUERS} are the most"
        raise _not_own(message)
    issued_by = str(by) if nearest else by.issued_by
    return replace(new, issuers=issuers, issued_by=issued_by or new.issued_by)


def _refuse_impersonation(caller: Caller, body: wire.NewToken, user_id: UUID | None) -> None:
    """Refuse a token of another user or role, which gates would take for another person's. Administrators may."""
    if caller.may("admin"):
        return
    if user_id is not None and user_id != caller.principal_id:
        raise _not_own(f"you cannot issue a token of {body.user!r}: only administrators issue tokens of other users")
    if body.role is not None and body.role != caller.role:
        raise _not_own(f"you cannot issue a token with the role {body.role!r}, because yours has another; name scopes")


def _not_own(message: str) -> Forbidden:
    return Forbidden(message, code="grants_more", problems=(Problem("", message, "ask an administrator"),))


async def revoke_one(context: Context, caller: Caller, ref: str) -> None:
    async with context.database.transaction() as connection:
        line = await _changeable(connection, caller, ref)
        await tokens.revoke_token(connection, tenant=caller.tenant, token_id=line.token_id)
        await audit.record(
            connection, "token.revoke", line.token_id, tenant=caller.tenant, by=caller.name, name=line.name
        )
    context.streams.announce_end(line.token_id)


async def _changeable(connection: Connection, caller: Caller, ref: str) -> TokenLine:
    """A token that the caller may revoke or rotate: one that may do no more than itself. Its row is locked."""
    line = None
    if refs.is_id(ref):
        line = await tokens.lock_token(connection, tenant=caller.tenant, token_id=UUID(ref))
    if line is None:
        raise NotFound(f"there is no token {ref!r}; it may already be revoked")
    if line.token_id != caller.token_id and not caller.may("admin"):
        refuse_more(line.allowed, caller.held, grants=line.grants, held_grants=caller.name.grants)
    return line


def shown(line: TokenLine, caller: Caller) -> wire.Token:
    grants = line.grants
    return wire.Token(
        token_id=line.token_id,
        name=line.name,
        scopes=sorted(line.allowed),
        role=line.role,
        user=line.user,
        queues=None if grants is None else list(grants.queues),
        labels=None if grants is None else list(grants.labels),
        kinds=None if grants is None else list(grants.kinds),
        created_at=line.created_at,
        created_by=line.created_by,
        expires_at=line.expires_at,
        expired=line.expired,
        last_used_at=line.last_used_at,
        replaced_by=line.replaced_by,
        schedule_quota=line.schedule_quota,
        current=line.token_id == caller.token_id,
    )


def seconds_of(text: str, pointer: str, *, least: float = 1, most: float = LONGEST_S) -> float:
    """A duration within its bounds."""
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise invalid(pointer, str(error), hint="for example 1h or 90d") from None
    if not least <= seconds <= most:
        raise invalid(pointer, f"{text!r} is out of range", hint=f"from {least:g} s to {most / 86_400:g} days")
    return seconds


async def _expiry(connection: Connection, expires_in: str | None) -> datetime | None:
    if expires_in is None:
        return None
    return instant(await database_now_ms(connection)) + timedelta(seconds=seconds_of(expires_in, "/expires_in"))


def _grants(body: wire.NewToken) -> WorkerGrants | None:
    if not (body.queues or body.labels or body.kinds):
        return None
    return WorkerGrants(tuple(body.queues) or (ANY,), tuple(body.labels), tuple(body.kinds) or (ANY,))
