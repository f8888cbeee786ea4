"""The PostgreSQL roles of servers: one that works for all tenants, and one that sees a single tenant at a time.

The owner of the schema migrates it and grants the roles; servers connect with roles that own nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit

import asyncpg

from mainspring.domain.errors import MainspringError
from mainspring.store.db import Connection, Database, connection_settings
from mainspring.store.migrate import protect_tables
from mainspring.store.primary import primary_of
from mainspring.store.queries import q

Kind = Literal["server", "tenant"]
FIRST_VERSION = 150_000
"""PostgreSQL 14 reads views with the rights of their owner, who sees all tenants."""
SCRAM_ITERATIONS = 4096
SHOWN_GRANTS = 3
NO_TENANT = 0


class RoleMissing(MainspringError):
    """A role of servers does not exist, or lacks a privilege."""

    code = "database_role"


@dataclass(frozen=True, slots=True)
class RoleFacts:
    """The role of a connection. `bypasses`: row-level security does not apply to it."""

    role: str
    version: int
    bypasses: bool
    owns: bool
    uses: bool


async def grant_roles(owner_url: str, *, server_url: str | None, tenant_url: str | None) -> list[str]:
    """Create the roles that these URLs name, where they are missing, and grant what they need; return their names.

    Safe to repeat. A role that exists keeps its password.
    """
    wanted: list[tuple[Kind, str]] = []
    if server_url is not None:
        wanted.append(("server", server_url))
    if tenant_url is not None:
        wanted.append(("tenant", tenant_url))
    connection = await primary_of(owner_url).connect(timeout=10, server_settings=connection_settings())
    try:
        for kind, url in wanted:
            await _grant(connection, kind, url)
        await protect_tables(connection)
    except asyncpg.InsufficientPrivilegeError as error:
        raise RoleMissing(f"{error}: grant roles with the URL of the role that owns the schema") from None
    finally:
        await connection.close()
    return [_credentials(url)[0] for _, url in wanted]


async def _grant(connection: Connection, kind: Kind, url: str) -> None:
    role, password = _credentials(url)
    if not await connection.fetchval(q("role_exists"), role):
        statement = await connection.fetchval(q("create_role_statement"), role, scram_verifier(password))
        try:
            await connection.execute(statement)
        except asyncpg.InsufficientPrivilegeError as error:
            raise RoleMissing(
                f"the role {role} does not exist, and {error}: as an administrator of the database run"
                f" `CREATE ROLE {role} LOGIN PASSWORD '…'`, then repeat this command"
            ) from None
    try:
        await connection.execute(q("grant_role"), role, kind)
    except asyncpg.InvalidRoleSpecificationError as error:
        raise RoleMissing(f"{error}; the {kind} URL must name a role of its own that owns nothing") from None


def _credentials(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    if not parts.username or not parts.password:
        raise RoleMissing("the URL of a role needs a user and a password, as in postgresql://user:password@host/name")
    return unquote(parts.username), unquote(parts.password)


def scram_verifier(password: str) -> str:
    """Return what PostgreSQL stores of a password (RFC 5803), so that the password is in no statement and no log."""
    if not password.isascii():
        raise RoleMissing("the password of a new role must consist of ASCII characters")
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, SCRAM_ITERATIONS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    salt64, stored64, server64 = (base64.b64encode(part).decode() for part in (salt, stored, server))
    return f"SCRAM-SHA-256${SCRAM_ITERATIONS}:{salt64}${stored64}:{server64}"


async def role_facts(connection: Connection) -> RoleFacts:
    row = await connection.fetchrow(q("role_facts"))
    assert row is not None
    return RoleFacts(**row)


async def check_roles(database: Database) -> None:
    """Raise unless the roles of a server have what they need. Read before the first request."""
    async with database.connection() as connection:
        await check_role(connection, "server")
    if database.has_tenant_role:
        async with database.of(NO_TENANT).connection() as connection:
            await check_role(connection, "tenant")


async def check_role(connection: Connection, kind: Kind) -> None:
    """Raise unless the role of a connection has what its kind needs; the error names what is missing."""
    facts = await role_facts(connection)
    repair = f"run `mainspring db migrate --{kind}-database-url …` with the owner's --database-url"
    if kind == "server" and (facts.owns or facts.bypasses):
        return  # an installation with one role for everything
    if not facts.uses:
        raise RoleMissing(f"the role {facts.role} lacks USAGE on the schema mainspring: {repair}")
    if missing := await connection.fetch(q("missing_grants"), kind):
        named = ", ".join(f"{r['privilege']} on {r['relation']}" for r in missing[:SHOWN_GRANTS])
        more = f" and {len(missing) - SHOWN_GRANTS} more" if len(missing) > SHOWN_GRANTS else ""
        raise RoleMissing(f"the role {facts.role} lacks {named}{more}: {repair}")
    sees_all = await connection.fetchval(q("sees_all_tenants"))
    if kind == "server" and not sees_all:
        raise RoleMissing(f"the role {facts.role} lacks policies that show it all tenants: {repair}")
    if kind == "tenant":
        _check_tenant(facts, sees_all=sees_all)


def _check_tenant(facts: RoleFacts, *, sees_all: bool) -> None:
    if facts.version < FIRST_VERSION:
        raise RoleMissing("--tenant-database-url needs PostgreSQL 15 or later")
    if facts.owns or facts.bypasses or sees_all:
        raise RoleMissing(
            f"row-level security does not apply to the role {facts.role} of --tenant-database-url, which owns the"
            " schema, is a superuser, bypasses it, or serves all tenants: name a role of its own"
        )


async def role_notes(database: Database) -> list[str]:
    """What `doctor` says about the roles of this installation."""
    async with database.connection() as connection:
        facts = await role_facts(connection)
    notes = []
    if facts.owns or facts.bypasses:
        notes.append(
            f"the server connects to PostgreSQL as {facts.role}, which may change the schema and every row:"
            " connect with a role that owns nothing (docs/how-to/deploy.md, Database roles)"
        )
    if not database.has_tenant_role:
        notes.append(
            "requests of all tenants share one PostgreSQL role: with --tenant-database-url, row-level security is a"
            " second check that no request reads or writes rows of another tenant"
        )
    return notes
