"""Routes of users and services, and of roles."""

from __future__ import annotations

from mainspring import wire
from mainspring.api.route import Call, Table
from mainspring.domain.roles import BUILT_IN
from mainspring.intake import roles, users
from mainspring.store import principals
from mainspring.store import roles as role_store
from mainspring.store.principals import PrincipalRow
from mainspring.store.roles import RoleRow
from mainspring.views import refs

table = Table()
USERS = "/api/v1/users"
ROLES = "/api/v1/roles"


@table.route("GET", USERS, scope="admin", response=wire.Page[wire.User], query=("limit", "cursor"))
async def list_users(call: Call) -> wire.Page[wire.User]:
    """List the users and services of the tenant by name."""
    limit = call.number("limit", 100)
    refs.check_limit(limit)
    async with call.context.database.connection() as connection:
        found = await principals.list_principals(
            connection, tenant=call.tenant, after=call.query("cursor") or "", limit=limit + 1
        )
    cursor = found[limit - 1].name if len(found) > limit else None
    return wire.Page(items=[user_of(row) for row in found[:limit]], next_cursor=cursor)


@table.route("POST", USERS, scope="admin", body=wire.NewUser, response=wire.User, status=201, creates=True)
async def create_user(call: Call) -> wire.User:
    """Create a user, or with `kind: service` an account for a program. Issue tokens for it with `user`."""
    caller = call.caller
    made = await users.create(call.context.database, call.body, held=caller.held, tenant=call.tenant, by=caller.name)
    return user_of(made)


@table.route("PATCH", USERS + "/{name}", scope="admin", body=wire.UserChange, response=wire.User)
async def change_user(call: Call) -> wire.User:
    """Change role, groups or display name of a user. A change applies to all its tokens at once."""
    changed, affected = await users.change(
        call.context.database,
        call.path("name"),
        call.body,
        held=call.caller.held,
        tenant=call.tenant,
        by=call.caller.name,
    )
    for token_id in affected:
        call.context.streams.announce_end(token_id)
    return user_of(changed)


@table.route("DELETE", USERS + "/{name}", scope="admin", status=204)
async def delete_user(call: Call) -> None:
    """Delete a user; its tokens are revoked at once."""
    revoked = await users.delete(call.context.database, call.path("name"), tenant=call.tenant, by=call.caller.name)
    for token_id in revoked:
        call.context.streams.announce_end(token_id)


@table.route("POST", USERS + "/{name}/block", scope="admin", response=wire.User)
async def block_user(call: Call) -> wire.User:
    """Block a user of an identity provider: its JWTs are refused, and its sessions and streams end at once."""
    blocked, ended = await users.block(
        call.context.database, call.path("name"), tenant=call.tenant, by=call.caller.name
    )
    for token_id in ended:
        call.context.streams.announce_end(token_id)
    return user_of(blocked)


@table.route("POST", USERS + "/{name}/unblock", scope="admin", response=wire.User)
async def unblock_user(call: Call) -> wire.User:
    """Admit a blocked user again. Its browser has to sign in again."""
    return user_of(
        await users.unblock(call.context.database, call.path("name"), tenant=call.tenant, by=call.caller.name)
    )


@table.route("GET", "/api/v1/whoami", scope="read", response=wire.Whoami)
async def whoami(call: Call) -> wire.Whoami:
    """Get the caller of this request, and what it may do."""
    caller = call.caller
    return wire.Whoami(
        name=str(caller.name),
        token_id=caller.token_id,
        tenant=caller.tenant_name,
        role=caller.role,
        scopes=sorted(caller.scopes),
        user_id=caller.principal_id,
        expires_in_s=caller.left_s,
        groups=sorted(caller.name.groups),
    )


@table.route("GET", ROLES, scope="read", response=wire.Page[wire.Role])
async def list_roles(call: Call) -> wire.Page[wire.Role]:
    """List the built-in roles, then those that the tenant defines."""
    async with call.context.database.connection() as connection:
        found = await role_store.list_roles(connection, tenant=call.tenant, limit=roles.MAX_ROLES)
    built_in = [
        wire.Role(name=role.name, scopes=list(role.scopes), description=role.description, built_in=True)
        for role in BUILT_IN.values()
    ]
    return wire.Page(items=[*built_in, *map(role_of, found)])


@table.route("PUT", ROLES + "/{name}", scope="admin", body=wire.RoleSpec, response=wire.Role)
async def write_role(call: Call) -> wire.Role:
    """Define a role as a set of scopes, or change it. A change applies at once to all who have it."""
    row, affected = await roles.write(
        call.context.database,
        call.path("name"),
        call.body.scopes,
        call.body.description,
        held=call.caller.held,
        tenant=call.tenant,
        by=call.caller.name,
    )
    for token_id in affected:
        call.context.streams.announce_end(token_id)
    return role_of(row)


@table.route("DELETE", ROLES + "/{name}", scope="admin", status=204)
async def delete_role(call: Call) -> None:
    """Delete a role that no user and no token has."""
    await roles.delete(call.context.database, call.path("name"), tenant=call.tenant, by=call.caller.name)


def user_of(row: PrincipalRow) -> wire.User:
    return wire.User(
        user_id=row.principal_id,
        name=row.name,
        display_name=row.display_name,
        kind=row.kind,
        role=row.role,
        created_at=row.created_at,
        created_by=row.created_by,
        tokens=row.tokens,
        last_used_at=row.last_used_at,
        issuer=row.issuer,
        blocked_at=row.blocked_at,
        groups=row.groups,
    )


def role_of(row: RoleRow) -> wire.Role:
    return wire.Role(
        name=row.name,
        scopes=list(row.scopes),
        description=row.description,
        built_in=False,
        created_at=row.created_at,
        created_by=row.created_by,
    )
