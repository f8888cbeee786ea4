"""Secret fields of channels and triggers: found in plain text or under an old master key, and replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from mainspring.store.db import Connection
from mainspring.store.queries import q

Holders = Literal["channels", "triggers"]
"""Tables whose rows have secret fields."""
_PLAIN: Mapping[Holders, str] = {"channels": "plain_channels", "triggers": "plain_triggers"}
_OTHER_KEY: Mapping[Holders, str] = {"channels": "other_key_channels", "triggers": "other_key_triggers"}
_SEAL: Mapping[Holders, str] = {"channels": "seal_channels", "triggers": "seal_triggers"}


@dataclass(frozen=True, slots=True)
class SecretFields:
    """The secret fields of a channel or trigger as its row has them.

    `plain` has references to secrets, and fields that are no secret; values only in a row that is not encrypted yet.
    A field in `plain` wins over the same field in the envelope: an older server has written it.
    """

    plain: dict[str, Any]
    key_id: str | None = None
    envelope: bytes | None = None

    def columns(self) -> tuple[dict[str, Any], str | None, bytes | None]:
        return self.plain, self.key_id, self.envelope


@dataclass(frozen=True, slots=True)
class Holder:
    """A channel or a trigger with its secret fields."""

    holder_id: UUID
    tenant: int
    name: str
    fields: SecretFields


async def plain_holders(connection: Connection, *, of: Holders, limit: int) -> list[Holder]:
    """Lock some rows of all tenants whose secrets are in plain text."""
    return _holders(await connection.fetch(q(_PLAIN[of]), limit))


async def holders_under_other_keys(connection: Connection, *, of: Holders, key_id: str, limit: int) -> list[Holder]:
    """Lock some rows of all tenants whose secrets are encrypted under another master key."""
    return _holders(await connection.fetch(q(_OTHER_KEY[of]), key_id, limit))


async def write_fields(
    connection: Connection, *, of: Holders, rows: Sequence[Holder], fields: Sequence[SecretFields]
) -> int:
    """Replace the secret fields of rows that still have those that were read; return how many were written."""
    written = await connection.fetch(
        q(_SEAL[of]),
        [row.holder_id for row in rows],
        [row.fields.plain for row in rows],
        [row.fields.envelope for row in rows],
        [one.plain for one in fields],
        [one.key_id for one in fields],
        [one.envelope for one in fields],
    )
    return len(written)


async def count_plain(connection: Connection, *, tenant: int | None) -> int:
    """Count the channels and triggers whose secrets are in plain text; with None over all tenants."""
    return int(await connection.fetchval(q("count_plain"), tenant))


def _holders(rows: Sequence[Any]) -> list[Holder]:
    return [
        Holder(r["holder_id"], r["tenant_id"], r["name"], SecretFields(r["secrets"], r["key_id"], r["envelope"]))
        for r in rows
    ]
