"""Define roles, and find the scopes of one. A caller can only give what it has itself."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from mainspring.domain.errors import Conflict, Forbidden, NotFound, Problem, invalid
from mainspring.domain.grants import WorkerGrants
from mainspring.domain.roles import BUILT_IN, check_role_name, check_scopes, not_included
from mainspring.domain.suggestion import closest
from mainspring.store import audit, roles, tokens
from mainspring.store.db import Connection, Database
from mainspring.store.roles import RoleRow

MAX_ROLES = 200
"""Roles that a tenant may define."""


async def scopes_of(connection: Connection, role: str, *, tenant: int) -> Sequence[str]:
    """The scopes of a role, which cannot be deleted until the transaction ends."""
    if role in BUILT_IN:
        return BUILT_IN[role].scopes
    found = await roles.role_by_name(connection, tenant=tenant, name=role)
    if found is None:
        known = [*BUILT_IN, *(r.name for r in await roles.list_roles(connection, tenant=tenant, limit=MAX_ROLES))]
        close = closest(role, known)
        hint = f"did you mean {close!r}?" if close else f"known: {', '.join(known)}"
        raise invalid("/role", f"there is no role {role!r}", hint=hint)
    return found.scopes


def refuse_more(
    scopes: Collection[str],
    held: Collection[str],
    *,
    grants: WorkerGrants | None = None,
    held_grants: WorkerGrants | None = None,
) -> None:
    """Refuse to give scopes, queues or labels that the caller does not have itself."""
    if missing := not_included(scopes, held):
        message = f"you cannot grant the scope {missing[0]!r}, because your token does not have it"
        problems = tuple(Problem("/scopes", f"not held: {scope}", "ask an administrator") for scope in missing)
        raise Forbidden(message, code="grants_more", problems=problems)
    if held_grants is None:
        return
    problems = tuple((grants or WorkerGrants(("*",))).exceeding(held_grants))
    if problems:
        raise Forbidden(f"{problems[0].message}; {problems[0].hint}", code="grants_more", problems=problems)


async def write(
    database: Database,
    name: str,
    scopes: Sequence[str],
    description: str,
    *,
    held: Collection[str],
    tenant: int,
    by: str,
) -> tuple[RoleRow, list[UUID]]:
    """Define or change a role; also returns the tokens whose rights may have changed."""
    check_role_name(name)
    check_scopes(scopes)
    refuse_more(scopes, held)
    async with database.transaction() as connection:
        before = await roles.role_by_name(connection, tenant=tenant, name=name)
        if before is None and await roles.count_roles(connection, tenant=tenant) >= MAX_ROLES:
            raise Conflict(f"the tenant has {MAX_ROLES} roles, the most it may", code="too_many_roles")
        unique = tuple(dict.fromkeys(scopes))
        row = await roles.write_role(
            connection, tenant=tenant, name=name, scopes=unique, description=description, created_by=by
        )
        await audit.record(
            connection,
            "role.write",
            name,
            tenant=tenant,
            by=by,
            name=name,
            scopes=list(row.scopes),
            before=None if before is None else list(before.scopes),
        )
        return row, await tokens.tokens_of_role(connection, tenant=tenant, role=name)


async def delete(database: Database, name: str, *, tenant: int, by: str) -> None:
    """Delete a role that no user and no token has."""
    if name in BUILT_IN:
        raise Conflict(f"the role {name!r} is built in and cannot be deleted", code="built_in")
    async with database.transaction() as connection:
        if not await roles.delete_role(connection, tenant=tenant, name=name):
            raise NotFound(f"there is no role {name!r}")
        # The deletion has locked the row, and a transaction that gives the role to a token locks it as well.
        if await roles.role_is_used(connection, tenant=tenant, name=name):
            raise Conflict(f"users or tokens have the role {name!r}; give them another one first", code="role_in_use")
        await audit.record(connection, "role.delete", name, tenant=tenant, by=by, name=name)
