"""What every kind of object offers: read it, compare it, write it, delete it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from mainspring.store.db import Connection, Database
from mainspring.vault.vault import Vault


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes, in which transaction, and what else they may do."""

    database: Database
    vault: Vault
    connection: Connection
    tenant: int
    by: str
    may_exceed: bool
    may_share: bool


@dataclass(frozen=True, slots=True)
class Live:
    """An object on the server: the fields that are not at their defaults, without its name."""

    values: dict[str, Any]
    object_id: UUID | None = None
    version: int | None = None
    source: Any = None
    secrets: Mapping[str, Any] = field(default_factory=dict)  # fields that are set; equal for equal stored values


@dataclass(frozen=True, slots=True)
class Written:
    """What writing an object resulted in."""

    object_id: UUID | None = None
    version: int | None = None
    secret: str | None = None


class Adapter(ABC):
    """One kind of object."""

    reports_kept = True
    """Whether a field that the manifest does not set, and is not at its default, was set by another user."""
    locks_shards = False
    """Whether writing it locks shards: these locks are taken before all others."""

    @abstractmethod
    async def read(self, connection: Connection, wanted: Mapping[str, UUID | None], *, tenant: int) -> dict[str, Live]:
        """Return the objects by name. `wanted` has the id under which each was last applied, if it has one."""

    @abstractmethod
    async def page(self, connection: Connection, *, tenant: int, after: str, limit: int) -> list[tuple[str, Live]]:
        """Return objects by name, after a name."""

    @abstractmethod
    async def write(self, writer: Writer, name: str, definition: Any, live: Live | None) -> Written:
        """Create or replace an object."""

    @abstractmethod
    async def delete(self, writer: Writer, name: str, live: Live, last: dict[str, Any]) -> None:
        """Delete an object; `last` are the fields that its manifest had set."""

    def comparable(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return fields in the one form in which equal ones are equal."""
        return values
