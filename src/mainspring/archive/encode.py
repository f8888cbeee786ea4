"""Turns a CSV copy of a day into Parquet files, one per tenant. It blocks: call it in a thread, or in a process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from mainspring.archive import job_filter
from mainspring.archive.columns import AT, BYTES, COLUMNS, Columns
from mainspring.domain.errors import MainspringError
from mainspring.store.archives import ArchiveFile, Content

BLOCK_BYTES = 32 << 20
"""Of CSV at a time. No row is longer: results, parameters and chunks of output are limited to less."""
COMPRESSION_LEVEL = 6


class Damaged(MainspringError):
    """A file of the archive is not what the catalogue says."""

    code = "archive_damaged"


@dataclass(frozen=True, slots=True)
class Encoded:
    """A file on the local disk, and its entry in the catalogue."""

    path: Path
    entry: ArchiveFile


def encode_day(csv: Path, folder: Path, *, content: Content, day: date, write_id: UUID) -> list[Encoded]:
    """Write one file per tenant. The rows are ordered by tenant and id."""
    found: list[Encoded] = []
    open_file: _File | None = None
    try:
        for tenant, table in _tables(csv, COLUMNS[content]):
            if open_file is None or open_file.tenant != tenant:
                if open_file is not None:
                    found.append(open_file.close(content, day, write_id))
                open_file = _File(folder / f"{content}-{tenant}.parquet", tenant, COLUMNS[content])
            open_file.write(table)
        if open_file is not None:
            found.append(open_file.close(content, day, write_id))
    finally:
        csv.unlink()
    return found


def _tables(csv: Path, columns: Columns) -> Iterator[tuple[int, pa.Table]]:
    """The rows of a copy in order, cut where the tenant changes."""
    if csv.stat().st_size == 0:
        return
    types = columns.csv_types
    reader = pacsv.open_csv(
        csv,
        pacsv.ReadOptions(column_names=list(types), block_size=BLOCK_BYTES),
        pacsv.ParseOptions(newlines_in_values=True),
        pacsv.ConvertOptions(
            column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )
    for batch in reader:
        table = _typed(pa.Table.from_batches([batch]), columns)
        while table.num_rows:
            tenant = table["tenant_id"][0].as_py()
            rows = pc.index(pc.not_equal(table["tenant_id"], tenant), True).as_py()
            rows = table.num_rows if rows < 0 else rows
            yield tenant, table.slice(0, rows)
            table = table.slice(rows)


def _typed(table: pa.Table, columns: Columns) -> pa.Table:
    arrays = []
    for field in columns.schema:
        column = table[field.name]
        if field.type == AT:
            column = column.cast(AT)
        elif field.type == BYTES:
            column = pa.chunked_array([pa.array(map(bytes.fromhex, column.to_pylist()), BYTES)])
        arrays.append(column)
    return pa.Table.from_arrays(arrays, schema=columns.schema)


class _File:
    def __init__(self, path: Path, tenant: int, columns: Columns) -> None:
        self.path = path
        self.tenant = tenant
        self._columns = columns
        self._rows = 0
        self._first = self._last = ""
        self._jobs: set[str] = set()
        self._writer = pq.ParquetWriter(
            path,
            columns.schema,
            compression="zstd",
            compression_level=COMPRESSION_LEVEL,
            use_dictionary=list(columns.dictionary),
            write_statistics=["execution_id", "finished_at"],
            write_page_checksum=True,
        )

    def write(self, table: pa.Table) -> None:
        ids = table["execution_id"]
        self._first = self._first or ids[0].as_py()
        self._last = ids[-1].as_py()
        self._rows += table.num_rows
        if "job_id" in table.column_names:
            self._jobs.update(pc.unique(table["job_id"]).to_pylist())
        self._writer.write_table(table, row_group_size=self._columns.group_rows)

    def close(self, content: Content, day: date, write_id: UUID) -> Encoded:
        self._writer.close()
        with self.path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").digest()
        entry = ArchiveFile(
            name=f"{folder_of(content, day)}/tenant={self.tenant}/{write_id}.parquet",
            day=day,
            tenant=self.tenant,
            content=content,
            rows=self._rows,
            size=self.path.stat().st_size,
            sha256=digest,
            first_id=UUID(self._first),
            last_id=UUID(self._last),
            jobs=job_filter.build(self._jobs) if self._jobs else None,
        )
        return Encoded(self.path, entry)


def folder_of(content: Content, day: date) -> str:
    """Hive partitioning, which DuckDB, pandas and Spark read: `history/day=2026-03-01/tenant=1/ID.parquet`."""
    return f"{content}/day={day.isoformat()}"


def check(path: Path, entry: ArchiveFile) -> None:
    """Raise Damaged unless a file, read back from the store, has the bytes and rows of its entry."""
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").digest() != entry.sha256:
            raise Damaged(f"{entry.name}: the SHA-256 is not that of the catalogue; the file was changed or cut")
    rows = 0
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as parquet:
            for group in range(parquet.num_row_groups):
                rows += parquet.read_row_group(group).num_rows
    except (OSError, pa.ArrowException) as error:
        raise Damaged(f"{entry.name}: not readable: {error}") from None
    if rows != entry.rows:
        raise Damaged(f"{entry.name}: has {rows:,} rows, the catalogue says {entry.rows:,}")


def csv_of(path: Path, content: Content) -> Iterator[bytes]:
    """The rows of a file as CSV for a restore, all columns as text."""
    columns = COLUMNS[content]
    names = [name for name, _ in columns.stored]
    with pq.ParquetFile(path) as parquet:
        for batch in parquet.iter_batches(batch_size=8_192, columns=names):
            arrays = []
            for name, type_ in columns.stored:
                column = batch.column(name)
                if type_ == AT:
                    column = column.cast(pa.int64())
                elif type_ == BYTES:
                    column = pa.array([data.hex() for data in column.to_pylist()], pa.string())
                arrays.append(column.cast(pa.string()))
            sink = pa.BufferOutputStream()
            options = pacsv.WriteOptions(include_header=False, quoting_style="needed")
            pacsv.write_csv(pa.record_batch(arrays, names=names), sink, options)
            yield sink.getvalue().to_pybytes()
