"""Create, change and delete users and services."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID, uuid4

from mainspring import wire
from mainspring.domain.audit import changes
from mainspring.domain.errors import Conflict, NotFound, invalid
from mainspring.domain.principal import is_group_name
from mainspring.domain.roles import check_user_name
from mainspring.intake.roles import refuse_more, scopes_of
from mainspring.store import audit, identities, principals, tokens
from mainspring.store.db import Connection, Database, Taken
from mainspring.store.principals import PrincipalRow


async def create(database: Database, new: wire.NewUser, *, held: Collection[str], tenant: int, by: str) -> PrincipalRow:
    """Add a user or a service. Its role cannot allow more than the caller has."""
    check_user_name(new.name)
    groups = checked_groups(new.groups)
    principal_id = uuid4()
    try:
        async with database.transaction() as connection:
            refuse_more(await scopes_of(connection, new.role, tenant=tenant), held)
            await principals.insert_principal(
                connection,
                tenant=tenant,
                principal_id=principal_id,
                kind=new.kind,
                name=new.name,
                display_name=new.display_name or new.name,
                role=new.role,
                groups=groups,
                created_by=by,
            )
            details: dict[str, Any] = {"groups": groups} if groups else {}
            await audit.record(
                connection,
                "user.create",
                principal_id,
                tenant=tenant,
                by=by,
                name=new.name,
                role=new.role,
                kind=new.kind,
                **details,
            )
            return await known(connection, new.name, tenant=tenant)
    except Taken:
        raise Conflict(f"there is a user {new.name!r} already", code="name_taken") from None


async def change(
    database: Database, name: str, wanted: wire.UserChange, *, held: Collection[str], tenant: int, by: str
) -> tuple[PrincipalRow, list[UUID]]:
    """Change role, groups and display name; also returns the tokens whose rights may have changed."""
    async with database.transaction() as connection:
        before = await known(connection, name, tenant=tenant)
        refuse_of_issuer(before, "block it, or change its claims at the issuer")
        role = before.role if wanted.role is None else wanted.role
        display_name = before.display_name if wanted.display_name is None else wanted.display_name
        groups = before.groups if wanted.groups is None else checked_groups(wanted.groups)
        if role != before.role:
            refuse_more(await scopes_of(connection, role, tenant=tenant), held)
        await principals.update_principal(
            connection,
            tenant=tenant,
            principal_id=before.principal_id,
            display_name=display_name,
            role=role,
            groups=groups,
        )
        differences = changes(
            {"role": before.role, "display_name": before.display_name, "groups": before.groups},
            {"role": role, "display_name": display_name, "groups": groups},
        )
        await audit.record(
            connection, "user.edit", before.principal_id, tenant=tenant, by=by, name=name, changes=differences
        )
        found = await tokens.list_tokens(connection, tenant=tenant, limit=10_000, principal_id=before.principal_id)
        return await known(connection, name, tenant=tenant), [token.token_id for token in found]


async def delete(database: Database, name: str, *, tenant: int, by: str) -> list[UUID]:
    """Delete a user and revoke its tokens, whose ids are returned."""
    async with database.transaction() as connection:
        row = await known(connection, name, tenant=tenant)
        refuse_of_issuer(row, "its next token would create it again; block it instead")
        revoked = await tokens.revoke_tokens_of(connection, tenant=tenant, principal_id=row.principal_id)
        await principals.delete_principal(connection, tenant=tenant, principal_id=row.principal_id)
        await audit.record(
            connection, "user.delete", row.principal_id, tenant=tenant, by=by, name=name, revoked=len(revoked)
        )
        return revoked


async def block(database: Database, name: str, *, tenant: int, by: str) -> tuple[PrincipalRow, list[UUID]]:
    """Refuse a user of an issuer from now on; also returns the tokens that stood for it, which have ended."""
    async with database.transaction() as connection:
        row = await known(connection, name, tenant=tenant)
        if row.issuer is None:
            raise Conflict(
                f"{name!r} is not a user of an issuer; delete it, or revoke its tokens", code="not_of_issuer"
            )
        ended = []
        if await identities.block_principal(connection, tenant=tenant, principal_id=row.principal_id):
            ended = await tokens.revoke_tokens_of(connection, tenant=tenant, principal_id=row.principal_id)
            await audit.record(connection, "user.block", row.principal_id, tenant=tenant, by=by, name=name)
        return await known(connection, name, tenant=tenant), ended


async def unblock(database: Database, name: str, *, tenant: int, by: str) -> PrincipalRow:
    """Admit a blocked user of an issuer again."""
    async with database.transaction() as connection:
        row = await known(connection, name, tenant=tenant)
        if await identities.unblock_principal(connection, tenant=tenant, principal_id=row.principal_id):
            await audit.record(connection, "user.unblock", row.principal_id, tenant=tenant, by=by, name=name)
        return await known(connection, name, tenant=tenant)


def checked_groups(names: Sequence[str]) -> list[str]:
    """The names of groups, each once; refuses names that cannot be shown."""
    for number, name in enumerate(names):
        if not is_group_name(name):
            raise invalid(f"/groups/{number}", f"{name!r} is not the name of a group", hint="printable characters")
    return sorted(set(names))


def refuse_of_issuer(row: PrincipalRow, hint: str) -> None:
    """Refuse a change of a user whose role and tokens come from an issuer."""
    if row.issuer is not None:
        raise Conflict(f"the user {row.name!r} comes from the issuer {row.issuer}: {hint}", code="user_of_issuer")


async def known(connection: Connection, name: str, *, tenant: int) -> PrincipalRow:
    """A user by name; its row is locked until the end of the transaction."""
    row = await principals.lock_principal(connection, tenant=tenant, name=name)
    if row is None:
        raise NotFound(f"there is no user {name!r}")
    return row
