"""Estimates what missing migrations lock, and for how long, from their statements and the sizes of tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mainspring.store.migrate import Migration

READ_BYTES_PER_S = 100e6
"""Reading a table, for a check or an index: a modest disk."""
WRITTEN_ROWS_PER_S = 20_000.0
INSTANT_S = 0.05
CLOSED = "ACCESS EXCLUSIVE"


@dataclass(frozen=True, slots=True)
class TableSize:
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class PlannedStatement:
    """One statement that touches an existing table. `blocks`: what waits meanwhile."""

    number: int
    statement: str
    table: str
    lock: str
    blocks: str
    seconds: float


_INDEX_CONCURRENTLY = re.compile(r"(?i)\ACREATE (?:UNIQUE )?INDEX CONCURRENTLY .*?\bON (\w+)")
_INDEX = re.compile(r"(?i)\ACREATE (?:UNIQUE )?INDEX .*?\bON (?:ONLY )?(\w+)")
_VALIDATE = re.compile(r"(?i)\AALTER TABLE (?:ONLY )?(\w+) VALIDATE")
_CHECK = re.compile(r"(?i)\AALTER TABLE (?:ONLY )?(\w+) (?>.*ADD (?:CONSTRAINT \w+ )?CHECK)(?!.*NOT VALID)")
_TYPE = re.compile(r"(?i)\AALTER TABLE (?:ONLY )?(\w+) .*ALTER (?:COLUMN )?\w+ (?:SET DATA )?TYPE")
_ALTER = re.compile(r"(?i)\AALTER TABLE (?:ONLY )?(\w+)")
_TRIGGER = re.compile(r"(?i)\ACREATE (?:OR REPLACE )?(?:CONSTRAINT )?TRIGGER .*?\bON (\w+)")
_DROP = re.compile(r"(?i)\ADROP TABLE (?:IF EXISTS )?(\w+)")
_UPDATE = re.compile(r"(?i)\AUPDATE (\w+)")
_DELETE = re.compile(r"(?i)\ADELETE FROM (\w+)")
_RULES = (
    (_INDEX_CONCURRENTLY, "SHARE UPDATE EXCLUSIVE", "nothing", "read"),
    (_INDEX, "SHARE", "writes", "read"),
    (_VALIDATE, "SHARE UPDATE EXCLUSIVE", "nothing", "read"),
    (_CHECK, CLOSED, "all", "read"),
    (_TYPE, CLOSED, "all", "write"),
    (_ALTER, CLOSED, "all", "instant"),
    (_TRIGGER, "SHARE ROW EXCLUSIVE", "writes", "instant"),
    (_DROP, CLOSED, "all", "instant"),
    (_UPDATE, "ROW EXCLUSIVE", "changes of the same rows", "write"),
    (_DELETE, "ROW EXCLUSIVE", "changes of the same rows", "write"),
)
"""The first that matches a statement decides: what it locks, what waits meanwhile, and what it does with the rows."""
_BODY = re.compile(r"\$(\w*)\$.*?\$\1\$", re.DOTALL)
_COMMENT = re.compile(r"--[^\n]*")


def plan(missing: list[Migration], sizes: Mapping[str, TableSize]) -> list[PlannedStatement]:
    """Return the statements of missing migrations that lock existing tables, in order."""
    return [planned for migration in missing for planned in _planned(migration, sizes)]


def _planned(migration: Migration, sizes: Mapping[str, TableSize]) -> Iterator[PlannedStatement]:
    closed: set[str] = set()  # tables that an earlier statement has locked until the end of the transaction
    for text in _COMMENT.sub("", _BODY.sub("$$ $$", migration.sql)).split(";"):
        statement = " ".join(text.split())
        for pattern, lock, blocks, work in _RULES:
            match = pattern.match(statement)
            if match is None:
                continue
            table, size = match[1].lower(), sizes.get(match[1].lower())
            if lock == CLOSED:
                closed.add(table)
            if size is not None:  # a table of the same migration is empty, and unknown to others
                held = (CLOSED, "all") if table in closed else (lock, blocks)
                yield PlannedStatement(migration.number, statement, match[1], *held, _seconds(work, size))
            break


def _seconds(work: str, size: TableSize) -> float:
    if work == "instant":
        return INSTANT_S
    if work == "read":
        return INSTANT_S + size.bytes / READ_BYTES_PER_S
    return INSTANT_S + size.rows / WRITTEN_ROWS_PER_S
