"""The columns of archived files: Parquet types, and how they pass through CSV from and to PostgreSQL.

Ids are text, in lower case, so that any reader can compare them. Instants are microseconds in UTC. JSON is text as
PostgreSQL writes it. The last columns of a table are the names of job and worker: readers need no other table, and a
restore ignores them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from mainspring.store.archives import Content

ID, TEXT, INT, SMALL, BIG = pa.string(), pa.string(), pa.int32(), pa.int16(), pa.int64()
AT = pa.timestamp("us", tz="UTC")
BYTES = pa.binary()


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table, in the order of its copy."""

    stored: Sequence[tuple[str, pa.DataType]]  # of the table, restored
    named: Sequence[str]  # names of other tables
    dictionary: Sequence[str]  # with few distinct values
    group_rows: int  # of a row group, which is read as a whole

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.stored, *((name, TEXT) for name in self.named)])

    @property
    def csv_types(self) -> dict[str, pa.DataType]:
        """Instants are numbers in CSV, and bytes are hexadecimal text."""
        as_csv = {AT: BIG, BYTES: TEXT}
        return {field.name: as_csv.get(field.type, field.type) for field in self.schema}


HISTORY = Columns(
    stored=(
        ("tenant_id", INT),
        ("execution_id", ID),
        ("job_id", ID),
        ("version", INT),
        ("exit_code", INT),
        ("duration_ms", INT),
        ("fires", INT),
        ("priority", SMALL),
        ("attempt", SMALL),
        ("state", TEXT),
        ("trigger", TEXT),
        ("queue", TEXT),
        ("fire_at", AT),
        ("due_at", AT),
        ("queued_at", AT),
        ("started_at", AT),
        ("finished_at", AT),
        ("session_id", ID),
        ("reason", TEXT),
        ("error", TEXT),
        ("result", TEXT),
        ("params", TEXT),
        ("created_by", TEXT),
        ("backfill_id", ID),
    ),
    named=("job", "worker"),
    dictionary=(
        *("job_id", "state", "trigger", "queue", "session_id", "reason", "created_by", "backfill_id"),
        *("job", "worker"),
    ),
    group_rows=16_384,
)
ATTEMPTS = Columns(
    stored=(
        ("tenant_id", INT),
        ("execution_id", ID),
        ("attempt", SMALL),
        ("session_id", ID),
        ("outcome", TEXT),
        ("exit_code", INT),
        ("error", TEXT),
        ("started_at", AT),
        ("ended_at", AT),
        ("due_at", AT),
        ("queued_at", AT),
        ("duration_ms", INT),
    ),
    named=("worker",),
    dictionary=("session_id", "outcome", "worker"),
    group_rows=16_384,
)
LOG_CHUNKS = Columns(
    stored=(
        ("tenant_id", INT),
        ("execution_id", ID),
        ("attempt", SMALL),
        ("seq", INT),
        ("stream", TEXT),
        ("data", BYTES),
        ("started_at", AT),
        ("received_at", AT),
    ),
    named=(),
    dictionary=("execution_id", "stream"),
    group_rows=1_024,
)
COLUMNS: dict[Content, Columns] = {"history": HISTORY, "attempts": ATTEMPTS, "log_chunks": LOG_CHUNKS}
