"""`mainspring users` and `mainspring roles`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainspring import wire
from mainspring.cli.connect import connected
from mainspring.cli.group import Group
from mainspring.cli.output import Column, Output, TableLayout, echo
from mainspring.display.times import local

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

USERS: TableLayout[wire.User] = TableLayout(
    name=lambda user: user.name,
    columns=[
        Column("NAME", lambda user: user.name),
        Column("DISPLAY NAME", lambda user: user.display_name, wraps=True),
        Column("KIND", lambda user: user.kind),
        Column("ROLE", lambda user: user.role if user.blocked_at is None else f"{user.role} (blocked)"),
        Column("GROUPS", lambda user: ", ".join(user.groups) or "–", wraps=True, wide=True),
        Column("TOKENS", lambda user: str(user.tokens)),
        Column("LAST USED", lambda user: "never" if user.last_used_at is None else local(user.last_used_at)),
        Column("BLOCKED", lambda user: "no" if user.blocked_at is None else local(user.blocked_at), wide=True),
        Column("ISSUER", lambda user: user.issuer or "–", wide=True),
        Column("CREATED BY", lambda user: user.created_by, wide=True),
    ],
    empty="no users",
)
ROLES: TableLayout[wire.Role] = TableLayout(
    name=lambda role: role.name,
    columns=[
        Column("NAME", lambda role: role.name),
        Column("SCOPES", lambda role: ",".join(role.scopes), wraps=True),
        Column("BUILT IN", lambda role: "yes" if role.built_in else "no"),
        Column("DESCRIPTION", lambda role: role.description, wraps=True),
    ],
    empty="no roles",
)


@click.group(cls=Group)
def users() -> None:
    """Manage users and services; issue tokens for them with `tokens create --user`."""


@users.command("create")
@click.argument("name")
@click.option("--role", required=True, metavar="ROLE", help="Role, such as viewer, submitter, operator or admin.")
@click.option("--display-name", default="", metavar="TEXT", help="Name as it is shown.  [default: NAME]")
@click.option("--service", is_flag=True, help="A program instead of a person.")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Group that gates can name. Repeatable.")
@connected
async def create_user(
    client: AsyncClient, out: Output, name: str, role: str, display_name: str, service: bool, groups: tuple[str, ...]
) -> None:
    """Create a user, or with --service an account for a program."""
    kind: wire.UserKind = "service" if service else "user"
    new = wire.NewUser(name=name, role=role, display_name=display_name, kind=kind, groups=list(groups))
    out.row(await client.create_user(new), USERS)


@users.command("list")
@connected
async def list_users(client: AsyncClient, out: Output) -> None:
    """List users and services."""
    out.page(await client.users(limit=500), USERS)


@users.command("edit")
@click.argument("name")
@click.option("--role", metavar="ROLE", help="New role, for all tokens of the user at once.")
@click.option("--display-name", metavar="TEXT", help="New name as it is shown.")
@click.option(
    "--group", "groups", multiple=True, metavar="GROUP", help="Replace the groups. Repeatable; none: no group."
)
@connected
async def edit_user(
    client: AsyncClient, out: Output, name: str, role: str | None, display_name: str | None, groups: tuple[str, ...]
) -> None:
    """Change role, groups or display name of a user."""
    wanted = None if not groups else [group for group in groups if group != "none"]
    out.row(await client.change_user(name, wire.UserChange(role=role, display_name=display_name, groups=wanted)), USERS)


@users.command("delete")
@click.argument("name")
@connected
async def delete_user(client: AsyncClient, out: Output, name: str) -> None:
    """Delete a user. Its tokens stop working at once."""
    await client.delete_user(name)
    echo(f"deleted {name}", err=True)


@users.command("block")
@click.argument("name")
@connected
async def block_user(client: AsyncClient, out: Output, name: str) -> None:
    """Block a user of an identity provider. Its tokens, sessions and streams end at once."""
    out.row(await client.block_user(name), USERS)


@users.command("unblock")
@click.argument("name")
@connected
async def unblock_user(client: AsyncClient, out: Output, name: str) -> None:
    """Admit a blocked user again."""
    out.row(await client.unblock_user(name), USERS)


@click.group(cls=Group)
def roles() -> None:
    """Manage roles: named sets of scopes."""


@roles.command("create")
@click.argument("name")
@click.option("--scope", "scopes", multiple=True, required=True, metavar="SCOPE", help="Scope. Repeatable.")
@click.option("--description", default="", metavar="TEXT", help="What the role is for.")
@connected
async def create_role(client: AsyncClient, out: Output, name: str, scopes: tuple[str, ...], description: str) -> None:
    """Define a role, or change the scopes of one. A change applies at once."""
    out.row(await client.write_role(name, wire.RoleSpec(scopes=list(scopes), description=description)), ROLES)


@roles.command("list")
@connected
async def list_roles(client: AsyncClient, out: Output) -> None:
    """List the built-in roles and those of the tenant."""
    out.page(await client.roles(), ROLES)


@roles.command("delete")
@click.argument("name")
@connected
async def delete_role(client: AsyncClient, out: Output, name: str) -> None:
    """Delete a role that no user and no token has."""
    await client.delete_role(name)
    echo(f"deleted {name}", err=True)
