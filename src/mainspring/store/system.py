"""Facts on the database server and the Mainspring processes, for operators. Not tenant data."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mainspring.domain.engines import EngineState, engine_states
from mainspring.store.db import Connection
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """Version, size, age and connections of the database."""

    version: str
    bytes: int
    started_at: datetime
    now: datetime
    connections: int
    most_connections: int
    transaction_age: int


@dataclass(frozen=True, slots=True)
class TableSize:
    """Size of a table with its indexes. `rows` as of the last ANALYZE; a partitioned table has many `parts`."""

    name: str
    parts: int
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """The latest measurements of a process."""

    name: str
    measured_at: datetime
    figures: dict[str, Any]


async def system_facts(connection: Connection) -> DatabaseFacts:
    row = await connection.fetchrow(q("system_facts"))
    assert row is not None
    return DatabaseFacts(*row.values())


async def table_sizes(connection: Connection, *, limit: int) -> list[TableSize]:
    return [TableSize(*r.values()) for r in await connection.fetch(q("table_sizes"), limit)]


async def process_figures(connection: Connection) -> list[ProcessFigures]:
    return [ProcessFigures(*r.values()) for r in await connection.fetch(q("process_figures"))]


async def engines(connection: Connection) -> list[EngineState]:
    """The engines of all processes, as measured in the last minute."""
    return list(engine_states((p.name, p.figures) for p in await process_figures(connection)))


@dataclass(frozen=True, slots=True)
class TableUpkeep:
    """Size of a table and what vacuum has left: `dead_rows` take space until it removes them."""

    name: str
    parts: int
    bytes: int
    rows: int
    dead_rows: int
    vacuumed_at: datetime | None


async def table_upkeep(connection: Connection) -> list[TableUpkeep]:
    return [TableUpkeep(*r.values()) for r in await connection.fetch(q("table_upkeep"))]


async def oldest_transaction_s(connection: Connection) -> float:
    return float(await connection.fetchval(q("oldest_transaction")))
