"""Functions whose effects are rows in the user's database."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import asyncpg
import psycopg

import mainspring as ms


@ms.job(delivery="effectively_once", retries={"max": 1000, "base": 0})
def pay(dsn: str, dies: str = "") -> dict[str, Any]:
    """Insert one row per execution; `dies` says where the first attempt is killed."""
    attempt = ms.context().attempt
    with psycopg.connect(dsn) as connection:
        with ms.transaction(connection) as tx:
            connection.execute("INSERT INTO effects VALUES (%s, %s)", (ms.context().execution_id, attempt))
            tx.result = {"paid_by": attempt}
            if attempt == 1 and dies == "before":
                os.kill(os.getpid(), signal.SIGKILL)
        if attempt == 1 and dies == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        if attempt == 1 and dies == "raises":
            raise OSError("after the commit")
    return {"paid_by": attempt}


def pay_and_wait(dsn: str, folder: str) -> str:
    """Commit, report that, and then hang."""
    with psycopg.connect(dsn) as connection, ms.transaction(connection) as tx:
        connection.execute("INSERT INTO effects VALUES (%s, %s)", (ms.context().execution_id, ms.context().attempt))
        tx.result = "paid"
    Path(folder, "committed").touch()
    threading.Event().wait()
    return "never"


async def pay_async(dsn: str) -> dict[str, Any]:
    connection = await asyncpg.connect(dsn)
    try:
        async with ms.transaction(connection) as tx:
            found = ms.context()
            await connection.execute("INSERT INTO effects VALUES ($1, $2)", found.execution_id, found.attempt)
            tx.result = {"paid_by": found.attempt}
        if found.attempt == 1:
            raise OSError("after the commit")
        return {"paid_by": found.attempt}
    finally:
        await connection.close()


def careless() -> str:
    """Declare effectively_once without a transaction."""
    return "done"
