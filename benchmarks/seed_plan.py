"""What the seed scripts share: how much to fill, and a connection for it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncpg

from mainspring.store.db import Connection, Database, connection_settings, prepare_connection

EXECUTIONS = int(os.environ.get("SEED_EXECUTIONS", "10000000"))
JOBS = int(os.environ.get("SEED_JOBS", "10000"))
DAYS = int(os.environ.get("SEED_DAYS", "30"))
WORKERS = 40
TEAMS = ("billing", "crm", "etl", "growth", "infra", "ledger", "mail", "ml", "ops", "search", "stock", "web")


@dataclass(frozen=True)
class Plan:
    executions: int = EXECUTIONS
    jobs: int = JOBS
    days: int = DAYS


@contextlib.asynccontextmanager
async def connect(database: Database) -> AsyncIterator[Connection]:
    """Open a separate connection: those of the pool time out after a minute."""
    connection = await asyncpg.connect(database.dsn, server_settings=connection_settings())
    try:
        await prepare_connection(connection)
        await connection.execute("SET synchronous_commit = off")
        await connection.execute("SET work_mem = '256MB'; SET maintenance_work_mem = '512MB'")
        await connection.execute("SET max_parallel_maintenance_workers = 0")  # the parallel days use the cores
        yield connection
    finally:
        await connection.close()
