"""A database under test: its time is what a test sets, and it is copied from a template."""

from __future__ import annotations

from datetime import datetime

import asyncpg

from mainspring.store.db import Connection

# Not among the named queries: their table exists only in databases under test.
CREATE_CLOCK = "CREATE TABLE virtual_clock (at timestamptz NOT NULL)"
SHOW_CLOCK = "GRANT SELECT ON virtual_clock TO PUBLIC"
INSERT_CLOCK = "INSERT INTO virtual_clock VALUES ($1)"
FOLLOW_CLOCK = """
CREATE OR REPLACE FUNCTION db_now() RETURNS timestamptz LANGUAGE sql VOLATILE
    AS 'SELECT at FROM mainspring.virtual_clock'
"""
SET_WATERMARKS = "UPDATE shards SET watermark = $1"
SET_CLOCK = "UPDATE virtual_clock SET at = $1"


async def install_clock(connection: Connection, *, at: datetime) -> None:
    """Have db_now() return what `set_clock` sets, so that every check in SQL follows it."""
    await connection.execute(CREATE_CLOCK)
    await connection.execute(SHOW_CLOCK)
    await connection.execute(INSERT_CLOCK, at)
    await connection.execute(FOLLOW_CLOCK)
    await connection.execute(SET_WATERMARKS, at)


async def set_clock(connection: Connection, *, at: datetime) -> None:
    await connection.execute(SET_CLOCK, at)


async def create_database(dsn: str, name: str, *, template: str | None = None) -> None:
    await _run(dsn, f'CREATE DATABASE "{name}"' + (f' TEMPLATE "{template}"' if template else ""))


async def drop_database(dsn: str, name: str) -> None:
    await _run(dsn, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


async def _run(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn, timeout=30)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
