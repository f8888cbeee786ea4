"""API tokens and their schedule quotas. Only digests of tokens are stored."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from mainspring.domain.grants import WorkerGrants
from mainspring.domain.roles import BUILT_IN, effective_scopes
from mainspring.store.db import Connection
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class Token:
    """A valid token with what it may do now: `scopes` follow from its role, and from the role of its user."""

    token_id: UUID
    tenant: int
    name: str
    scopes: frozenset[str]
    tenant_name: str = ""
    schedule_quota: int | None = None
    grants: WorkerGrants | None = None
    role: str | None = None
    principal_id: UUID | None = None
    user: str | None = None
    unused: bool = False  # for more than a minute
    left_s: float | None = None  # until it expires
    suspended: bool = False  # its tenant
    queue_is_limited: bool = False  # by a quota of its tenant
    is_identity: bool = False  # stands for the JWTs and sessions of a user that an issuer knows; it has no secret
    groups: tuple[str, ...] = ()  # of its user
    delegated_by: UUID | None = None
    issuers: tuple[UUID, ...] = ()
    issued_by: str | None = None

    @property
    def actor_id(self) -> UUID:
        """The id that changes are recorded with: one for all roles of a user that an issuer knows."""
        return self.principal_id if self.is_identity and self.principal_id is not None else self.token_id


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token to insert. `scopes` are those that it has besides its role's; of a user's token, at most these."""

    name: str
    scopes: Sequence[str] = ()
    role: str | None = None
    principal_id: UUID | None = None
    expires_at: datetime | None = None
    schedule_quota: int | None = None
    grants: WorkerGrants | None = None
    created_by: str | None = None
    delegated_by: UUID | None = None
    issuers: Collection[UUID] = ()
    issued_by: str | None = None


async def insert_token(connection: Connection, new: NewToken, *, tenant: int, token_id: UUID, digest: bytes) -> None:
    grants = new.grants
    await connection.execute(
        q("insert_token"),
        token_id,
        tenant,
        new.name,
        digest,
        list(new.scopes),
        new.expires_at,
        new.schedule_quota,
        None if grants is None else list(grants.queues),
        None if grants is None else list(grants.labels),
        None if grants is None else list(grants.kinds),
        new.principal_id,
        new.role,
        new.created_by,
        new.delegated_by,
        sorted(new.issuers),
        new.issued_by,
    )


async def token_by_digest(connection: Connection, *, digest: bytes) -> Token | None:
    """The valid token with this digest; it determines the tenant."""
    row = await connection.fetchrow(q("token_by_digest"), digest)
    return None if row is None else token_of(row)


async def use_token(connection: Connection, *, token_id: UUID) -> None:
    """Record that a token is in use."""
    await connection.execute(q("use_token"), token_id)


async def persons_of_tokens(
    connection: Connection, *, tenant: int, short_ids: Sequence[str]
) -> list[tuple[UUID, list[UUID]]]:
    """The persons behind tokens whose ids begin with these digits, as `TokenLine.person_id`; with their issuers."""
    rows = await connection.fetch(q("persons_of_tokens"), tenant, list(short_ids))
    return [(r["person_id"], r["issuers"]) for r in rows]


def token_of(row: Any) -> Token:
    return Token(
        token_id=row["token_id"],
        tenant=row["tenant_id"],
        name=row["name"],
        scopes=_scopes(row),
        tenant_name=row["tenant"],
        schedule_quota=row["schedules_per_hour"] if row["schedule_quota"] is None else row["schedule_quota"],
        grants=_grants(row),
        role=row["role"] or row["user_role"],
        principal_id=row["principal_id"],
        user=row["user_name"],
        unused=row["unused"],
        left_s=row["left_s"],
        suspended=row["suspended"],
        queue_is_limited=row["queue_is_limited"],
        is_identity=_is_identity(row),
        groups=tuple(row["groups"] or ()),
        delegated_by=row["delegated_by"],
        issuers=tuple(row["issuers"]),
        issued_by=row["issued_by"],
    )


def _scopes(row: Any) -> frozenset[str]:
    role = None if row["role"] is None else scopes_of_role(row["role"], row["role_scopes"])
    user = None if row["user_role"] is None else scopes_of_role(row["user_role"], row["user_role_scopes"])
    return effective_scopes(row["scopes"], role, user)


def _is_identity(row: Any) -> bool:
    return row["principal_id"] is not None and row["user_role"] is None


def scopes_of_role(name: str, defined: Sequence[str] | None) -> Sequence[str]:
    """The scopes of a role: built in, or as its tenant defined it; none if it is not defined."""
    return BUILT_IN[name].scopes if name in BUILT_IN else defined or ()


def _grants(row: Any) -> WorkerGrants | None:
    """The grants of a token; None if it is not restricted."""
    if row["queues"] is None:
        return None
    return WorkerGrants(tuple(row["queues"]), tuple(row["labels"] or ()), tuple(row["kinds"] or ()))


@dataclass(frozen=True, slots=True)
class ScheduleGrant:
    """A number of schedules that may be created until the token's hour ends at `reset_at`."""

    granted: int
    reset_at: datetime
    left_s: float


async def begin_grants(connection: Connection, *, tenant: int, holder: UUID) -> None:
    await connection.execute(q("begin_grants"), holder, tenant)


async def grant_schedules(connection: Connection, *, tenant: int, holder: UUID, most: int) -> ScheduleGrant:
    """Grant a part of what is left of `most` in the hour to a user or token; 0 if nothing is left."""
    row = await connection.fetchrow(q("grant_schedules"), holder, tenant, most)
    assert row is not None, "begin_grants comes first"
    return ScheduleGrant(row["granted"], row["reset_at"], row["left_s"])


async def has_tokens(connection: Connection) -> bool:
    return bool(await connection.fetchval(q("has_tokens")))


async def revoke_tokens_named(connection: Connection, *, tenant: int, name: str) -> None:
    await connection.execute(q("revoke_tokens_named"), tenant, name)


async def server_key(connection: Connection, *, name: str) -> bytes:
    key = await connection.fetchval(q("server_key"), name)
    return bytes(key)


@dataclass(frozen=True, slots=True)
class TokenLine:
    """A token as listed, without its secret. `scopes` as issued, `allowed` as they are in effect."""

    token_id: UUID
    name: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    expired: bool
    allowed: frozenset[str]
    grants: WorkerGrants | None = None
    role: str | None = None
    principal_id: UUID | None = None
    user: str | None = None
    created_by: str | None = None
    last_used_at: datetime | None = None
    replaced_by: UUID | None = None
    schedule_quota: int | None = None
    is_identity: bool = False  # stands for the JWTs and sessions of a user that an issuer knows; it has no secret
    delegated_by: UUID | None = None
    issuers: tuple[UUID, ...] = ()
    issued_by: str | None = None

    @property
    def person_id(self) -> UUID:
        """Who is behind the token: who delegated it, its user, or itself."""
        return self.delegated_by or self.principal_id or self.token_id


async def list_tokens(
    connection: Connection,
    *,
    tenant: int,
    limit: int,
    before: tuple[datetime, UUID] | None = None,
    principal_id: UUID | None = None,
) -> list[TokenLine]:
    at, token_id = before or (None, None)
    rows = await connection.fetch(q("list_tokens"), tenant, limit, at, token_id, principal_id)
    return [_line(row) for row in rows]


async def lock_token(connection: Connection, *, tenant: int, token_id: UUID) -> TokenLine | None:
    """A token that is not revoked; its row is locked until the end of the transaction."""
    row = await connection.fetchrow(q("lock_token"), token_id, tenant)
    return None if row is None else _line(row)


def _line(row: Any) -> TokenLine:
    return TokenLine(
        row["token_id"],
        row["name"],
        row["scopes"],
        row["created_at"],
        row["expires_at"],
        row["expired"],
        _scopes(row),
        grants=_grants(row),
        role=row["role"],
        principal_id=row["principal_id"],
        user=row["user_name"],
        created_by=row["created_by"],
        last_used_at=row["last_used_at"],
        replaced_by=row["replaced_by"],
        schedule_quota=row["schedule_quota"],
        is_identity=_is_identity(row),
        delegated_by=row["delegated_by"],
        issuers=tuple(row["issuers"]),
        issued_by=row["issued_by"],
    )


async def replace_token(
    connection: Connection, *, tenant: int, token_id: UUID, by: UUID, overlap_s: float
) -> datetime | None:
    """Let a rotated token expire after the overlap; returns when, or None if it is not valid or was rotated already."""
    expires_at: datetime | None = await connection.fetchval(q("replace_token"), token_id, tenant, float(overlap_s), by)
    return expires_at


async def revoke_tokens_of(connection: Connection, *, tenant: int, principal_id: UUID) -> list[UUID]:
    return [r["token_id"] for r in await connection.fetch(q("revoke_tokens_of"), principal_id, tenant)]


async def tokens_of_role(connection: Connection, *, tenant: int, role: str) -> list[UUID]:
    return [r["token_id"] for r in await connection.fetch(q("tokens_of_role"), tenant, role)]


async def unbound_worker_tokens(connection: Connection, *, tenant: int, limit: int = 20) -> list[str]:
    """Names of worker tokens that grant everything, because they are older than grants."""
    return [r["name"] for r in await connection.fetch(q("unbound_worker_tokens"), tenant, limit)]


async def revoke_token(connection: Connection, *, tenant: int, token_id: UUID) -> str | None:
    """Revoke a token; return its name, or None if there is none to revoke."""
    name: str | None = await connection.fetchval(q("revoke_token"), token_id, tenant)
    return name
