"""`ms.transaction` on real connections of several drivers: effects and marker together, and only once."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import psycopg
import pytest

import mainspring as ms
from mainspring.sdk.context import current

pytestmark = pytest.mark.anyio

EFFECTS = "CREATE TABLE IF NOT EXISTS effects (who varchar(200) NOT NULL)"


class Attempt:
    """The current call, as a runner provides it."""

    job, fire_at, last_checkpoint, inputs = "pay", "2026-11-16T00:00:00Z", None, None

    def __init__(self, execution_id: str, attempt: int = 1) -> None:
        self.execution_id, self.attempt, self.committed = execution_id, attempt, False

    def report_progress(self, done: float, total: float | None, message: str | None) -> None: ...
    def write(self, stream: Any, text: str, *, flush: bool) -> None: ...
    def flush(self) -> None: ...
    def save_checkpoint(self, value: bytes) -> None: ...
    def artifact_folder(self) -> str:
        raise NotImplementedError


@contextmanager
def executing(execution_id: str, attempt: int = 1) -> Iterator[Attempt]:
    made = Attempt(execution_id, attempt)
    token = current.set(made)
    try:
        yield made
    finally:
        current.reset(token)


@pytest.fixture(params=["psycopg", "sqlite"])
def open_one(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """Return a function that opens another connection to the same database with a DB-API driver."""
    opened: list[Any] = []

    def connect() -> Any:
        if request.param == "psycopg":
            opened.append(psycopg.connect(database_url))
        else:
            opened.append(sqlite3.connect(tmp_path / "user.db", timeout=30, check_same_thread=False))
        return opened[-1]

    connection = connect()
    ms.create_marker_table(connection)
    ms.create_marker_table(connection)
    connection.cursor().execute(EFFECTS)
    connection.commit()
    yield connect
    for connection in opened:
        connection.close()


def count(connection: Any, who: str) -> int:
    cursor = connection.cursor()
    cursor.execute(f"SELECT count(*) FROM effects WHERE who = '{who}'")
    return int(cursor.fetchone()[0])


def pay(connection: Any, who: str, gives: Any = None, **more: Any) -> None:
    with ms.transaction(connection, **more) as tx:
        connection.cursor().execute(f"INSERT INTO effects VALUES ('{who}')")
        tx.result = gives or {"paid": who}


@pytest.mark.requirement(41)
def test_the_second_attempt_runs_nothing_and_has_the_first_ones_result(open_one: Callable[[], Any]) -> None:
    who, connection = str(uuid4()), open_one()
    with executing(who) as first:
        pay(connection, who)
        assert first.committed
    with executing(who, 2) as second, pytest.raises(ms.AlreadyDone) as done:
        pay(connection, who)
    assert (done.value.result, second.committed) == ({"paid": who}, True)
    assert count(open_one(), who) == 1
    key, other = str(uuid4()), str(uuid4())
    with executing(other):
        pay(connection, key, key=key)
    with executing(str(uuid4())), pytest.raises(ms.AlreadyDone):
        pay(connection, key, key=key)
    assert count(open_one(), key) == 1, "a key of one's own holds across executions"


def test_what_raises_leaves_neither_effects_nor_a_marker(open_one: Callable[[], Any]) -> None:
    who, connection = str(uuid4()), open_one()
    with executing(who) as first, pytest.raises(TypeError, match="object"):
        pay(connection, who, gives=object())
    assert not first.committed and count(open_one(), who) == 0
    with executing(who, 2) as second:
        pay(connection, who)
    assert second.committed and count(open_one(), who) == 1


def test_two_attempts_at_once_are_one_effect(open_one: Callable[[], Any]) -> None:
    """The second attempt waits at the marker for the end of the first."""
    who, inside = str(uuid4()), threading.Event()
    outcomes: list[Any] = []

    def first() -> None:
        with executing(who), ms.transaction(connection) as tx:
            connection.cursor().execute(f"INSERT INTO effects VALUES ('{who}')")
            tx.result = 1
            inside.set()
            assert second.is_alive()

    def late() -> None:
        other = open_one()
        inside.wait()
        with executing(who, 2):
            try:
                pay(other, who)
                outcomes.append("again")
            except ms.AlreadyDone as done:
                outcomes.append(done.result)

    connection = open_one()
    second = threading.Thread(target=late)
    second.start()
    first()
    second.join(30)
    assert (outcomes, count(open_one(), who)) == ([1], 1)


def test_outside_an_execution_it_is_an_ordinary_transaction(open_one: Callable[[], Any]) -> None:
    who, connection = str(uuid4()), open_one()
    pay(connection, who)
    pay(connection, who)
    assert count(open_one(), who) == 2


def test_what_would_commit_apart_is_refused(open_one: Callable[[], Any]) -> None:
    connection = open_one()
    with executing(str(uuid4())):
        pay(connection, "x")
        with pytest.raises(RuntimeError, match=r"ms\.transaction only once"):
            pay(connection, "x")
    if isinstance(connection, sqlite3.Connection):
        connection.isolation_level = None
    else:
        connection.autocommit = True
    with executing(str(uuid4())), pytest.raises(RuntimeError, match="autocommit mode"):
        pay(connection, "x")


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_asynchronous_drivers_do_the_same(database_url: str, driver: str) -> None:
    dsn, who = database_url, str(uuid4())
    if driver == "asyncpg":
        connection: Any = await asyncpg.connect(dsn)
        other: Any = await asyncpg.connect(dsn)
    else:
        connection = await psycopg.AsyncConnection.connect(dsn)
        other = await psycopg.AsyncConnection.connect(dsn)
    created = ms.create_marker_table(connection)
    assert created is not None
    await created
    await connection.execute(EFFECTS)
    if driver == "psycopg":
        await connection.commit()

    async def paid(connection: Any, attempt: int, *, fails: bool = False) -> Any:
        with executing(who, attempt) as made:
            try:
                async with ms.transaction(connection) as tx:
                    await connection.execute(f"INSERT INTO effects VALUES ('{who}')")
                    tx.result = attempt
                    if fails:
                        raise ValueError
                assert made.committed
                return attempt
            except ms.AlreadyDone as done:
                return done.result
            except ValueError:
                return "failed"

    assert await paid(connection, 1, fails=True) == "failed"
    assert list(await asyncio.gather(paid(connection, 2), paid(other, 3))) in ([2, 2], [3, 3])
    assert await paid(other, 4) in (2, 3)
    with psycopg.connect(dsn) as reading:
        assert count(reading, who) == 1
    with pytest.raises(TypeError, match="async with"), ms.transaction(connection):
        pass
    if driver == "asyncpg":
        with executing(str(uuid4())), pytest.raises(RuntimeError, match="already in a transaction"):
            async with connection.transaction(), ms.transaction(connection):
                pass
    await connection.close()
    await other.close()


def test_a_program_that_finds_its_work_done_ends_well(tmp_path: Path) -> None:
    """A program of a shell task, executed twice: the second time it exits with 0 and no effects."""
    text = (
        "import sqlite3, mainspring as ms\n"
        "db = sqlite3.connect('a.db')\n"
        "ms.create_marker_table(db)\n"
        "with ms.transaction(db):\n"
        "    print('effect')\n"
    )
    env = {"MAINSPRING_EXECUTION_ID": str(uuid4()), "MAINSPRING_JOB": "j", "MAINSPRING_FIRE_AT": Attempt.fire_at}
    ended = [
        subprocess.run(
            [sys.executable, "-c", text],
            cwd=tmp_path,
            env=env | {"MAINSPRING_ATTEMPT": n},
            capture_output=True,
            text=True,
            check=False,
        )
        for n in "12"
    ]
    assert [(e.returncode, e.stdout, e.stderr) for e in ended] == [(0, "effect\n", ""), (0, "", "")]
