"""Users that an OpenID Connect issuer knows. A token without a secret stands for each in each of its roles, so that
quotas, sessions, streams and the audit log treat them like others."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from mainspring.store import audit
from mainspring.store.db import Connection
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class NewIdentity:
    """A user of an issuer. `digest` is that of the token that stands for it in its role; no text has this digest."""

    principal_id: UUID
    name: str
    display_name: str
    role: str
    issuer: str
    subject: str
    token_id: UUID
    token_name: str
    digest: bytes
    created_by: str
    groups: tuple[str, ...] = ()


async def ensure_identity(connection: Connection, new: NewIdentity, *, tenant: int) -> bool | None:
    """Add a user of an issuer and its token if they are missing, and record a new user in the audit log.

    Returns whether the user is new; None if it is blocked. Raises `Taken` if another user has its name.
    """
    async with connection.transaction():
        added: bool | None = await connection.fetchval(
            q("ensure_identity"),
            new.principal_id,
            tenant,
            new.name,
            new.display_name,
            new.role,
            new.issuer,
            new.subject,
            new.created_by,
            new.token_id,
            new.token_name,
            new.digest,
            list(new.groups),
        )
        if added:
            await audit.record(
                connection,
                "user.create",
                new.principal_id,
                tenant=tenant,
                by=new.created_by,
                name=new.name,
                role=new.role,
                issuer=new.issuer,
            )
    return added


async def block_principal(connection: Connection, *, tenant: int, principal_id: UUID) -> bool:
    """Block a user; return whether it was not blocked."""
    return await connection.fetchval(q("block_principal"), principal_id, tenant) is not None


async def unblock_principal(connection: Connection, *, tenant: int, principal_id: UUID) -> bool:
    """Admit a blocked user again; return whether it was blocked."""
    return await connection.fetchval(q("unblock_principal"), principal_id, tenant) is not None


async def use_sign_in(connection: Connection, *, digest: bytes, seconds: float) -> bool:
    """Mark a sign-in as completed; return whether it was not completed before."""
    return await connection.fetchval(q("use_sign_in"), digest, float(seconds)) is not None
