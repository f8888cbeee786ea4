"""`ms.transaction`: effects in the user's own database that happen once per execution, whatever its attempts.

It writes a row with the execution's id in the same transaction as the effects. An attempt that finds this marker knows
that the effects are committed: it skips the body, and the execution ends with the stored result. The marker's key is
unique, so of two attempts at the same time the second waits for the first one's commit or rollback.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Awaitable, Callable
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from mainspring.sdk.context import CurrentCall, NotExecuting, context, current

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_PLACEHOLDERS: dict[str, Callable[[int], str]] = {
    "qmark": lambda n: "?",
    "format": lambda n: "%s",
    "pyformat": lambda n: "%s",
    "numeric": lambda n: f":{n}",
    "asyncpg": lambda n: f"${n}",
}


class AlreadyDone(BaseException):
    """An earlier attempt has committed the effects; the execution ends with the `result` stored then.

    Not an `Exception`, so that no `except Exception` on its way handles it as a failure. Do not catch it.
    """

    def __init__(self, key: str, result: str | None) -> None:
        super().__init__(f"the effects of {key} are already committed")
        self.stored = result

    @property
    def result(self) -> Any:
        return None if self.stored is None else msgspec.json.decode(self.stored)


class _AlreadyDoneExit(AlreadyDone, SystemExit):
    """Outside a runner: ends the program with exit code 0."""

    code = 0


class Transaction:
    """A context manager: `with`, or `async with` for an asynchronous driver. `result` is stored with the effects."""

    def __init__(self, connection: Any, key: str | None) -> None:
        self.result: Any = None
        self._connection = connection
        self._call: CurrentCall | None = current.get()
        self._key, self._attempt = _identity(key)
        self._native: Any = None  # asyncpg's transaction

    def __enter__(self) -> Transaction:
        if _is_async(self._connection):
            raise TypeError("this connection is asynchronous: use `async with ms.transaction(...)`")
        self._check()
        if self._key is not None:
            try:
                if self._run("mark", self._key, self._attempt).rowcount == 0:
                    raise self._done(self._run("find", self._key).fetchone())
            except BaseException as error:
                self._connection.rollback()
                _explain_missing_table(error)
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._connection.rollback()
            return
        try:
            if self._key is not None and self.result is not None:
                self._run("keep", _as_json(self.result), self._key)
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise
        self._committed()

    async def __aenter__(self) -> Transaction:
        if not _is_async(self._connection):
            raise TypeError("this connection is not asynchronous: use `with ms.transaction(...)`")
        self._check()
        await self._begin()
        if self._key is not None:
            try:
                if await self._marked():
                    raise self._done(await self._found())
            except BaseException as error:
                await self._end("rollback")
                _explain_missing_table(error)
                raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            await self._end("rollback")
            return
        try:
            if self._key is not None and self.result is not None:
                await self._await("keep", _as_json(self.result), self._key)
        except BaseException:
            await self._end("rollback")
            raise
        await self._end("commit")
        self._committed()

    def _check(self) -> None:
        """Raise if the effects and the marker would be committed separately."""
        if self._call is not None and self._call.committed:
            raise RuntimeError("an execution may use ms.transaction only once: put all effects into it")
        connection = self._connection
        if not hasattr(connection, "cursor"):
            raise TypeError(
                f"ms.transaction takes a connection of a driver (psycopg, asyncpg, sqlite3), not a "
                f"{type(connection).__name__}; from SQLAlchemy, pass engine.raw_connection()"
            )
        autocommits = getattr(connection, "isolation_level", "") is None and type(connection).__module__ == "sqlite3"
        if autocommits or getattr(connection, "autocommit", False) is True:
            raise RuntimeError("the connection is in autocommit mode: turn it off")
        if _is_asyncpg(connection) and connection.is_in_transaction():
            raise RuntimeError("the connection is already in a transaction: ms.transaction begins and commits its own")

    def _done(self, row: Any) -> AlreadyDone:
        assert self._key is not None
        self._committed()
        return (_AlreadyDoneExit if self._call is None else AlreadyDone)(self._key, None if row is None else row[0])

    def _committed(self) -> None:
        if self._call is not None:
            self._call.committed = True

    def _run(self, name: str, *values: Any) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(_statement(name, self._connection), values)
        return cursor

    async def _await(self, name: str, *values: Any) -> Any:
        if self._native is not None:
            return await self._connection.execute(_statement(name, self._connection), *values)
        return await self._connection.execute(_statement(name, self._connection), values)

    async def _begin(self) -> None:
        if _is_asyncpg(self._connection):
            self._native = self._connection.transaction()
            await self._native.start()

    async def _marked(self) -> bool:
        """Insert the marker; return whether it was already there."""
        inserted = await self._await("mark", self._key, self._attempt)
        return bool(inserted == "INSERT 0 0" if self._native is not None else inserted.rowcount == 0)

    async def _found(self) -> Any:
        if self._native is not None:
            return await self._connection.fetchrow(_statement("find", self._connection), self._key)
        return await (await self._await("find", self._key)).fetchone()

    async def _end(self, how: str) -> None:
        await getattr(self._native or self._connection, how)()


def transaction(connection: Any, *, key: str | None = None) -> Transaction:
    """Begin a transaction whose effects happen once: `with ms.transaction(connection) as tx: ...`.

    It commits at the end of the block, and rolls back if the block raises. Set `tx.result` to the function's result: a
    later attempt that finds the effects committed ends with it. Pass `key` to identify the effects by something other
    than the execution's id, if several executions mean the same effects. Needs the table of `create_marker_table`.
    Outside an execution and without a key it is an ordinary transaction.
    """
    return Transaction(connection, key)


def create_marker_table(connection: Any) -> Awaitable[None] | None:
    """Create the table that `ms.transaction` needs, unless it exists; `await` it on an asynchronous connection."""
    if _is_async(connection):
        return _create_async(connection)
    connection.cursor().execute(_statement("create", connection))
    connection.commit()
    return None


async def _create_async(connection: Any) -> None:
    await connection.execute(_statement("create", connection))
    if not _is_asyncpg(connection):
        await connection.commit()


def _identity(key: str | None) -> tuple[str | None, int]:
    try:
        found = context()
    except NotExecuting:
        return key, 0
    return key or found.idempotency_key, found.attempt


def _as_json(result: Any) -> str:
    try:
        return msgspec.json.encode(result).decode()
    except TypeError as error:
        raise TypeError(
            f"the result of the transaction is not JSON: {error}; use numbers, text, lists, dictionaries or None"
        ) from None


def _explain_missing_table(error: BaseException) -> None:
    """Raise an error that says what to do, if the table of markers does not exist."""
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if state == "42P01" or "no such table: mainspring_markers" in str(error):
        raise RuntimeError(
            "ms.transaction needs the table mainspring_markers in this database: create it once, for example when you "
            "migrate, with ms.create_marker_table(connection)"
        ) from error


def _is_asyncpg(connection: Any) -> bool:
    return hasattr(connection, "is_in_transaction")


def _is_async(connection: Any) -> bool:
    return _is_asyncpg(connection) or inspect.iscoroutinefunction(getattr(connection, "commit", None))


def _statement(name: str, connection: Any) -> str:
    module = sys.modules.get(type(connection).__module__.partition(".")[0])
    style = "asyncpg" if _is_asyncpg(connection) else str(getattr(module, "paramstyle", "format"))
    if style not in _PLACEHOLDERS:
        raise TypeError(f"ms.transaction does not support drivers with the parameter style {style!r}")
    text, n = _statements()[name], 0
    while "?" in text and style != "qmark":
        n += 1
        text = text.replace("?", _PLACEHOLDERS[style](n), 1)
    return text


@cache
def _statements() -> dict[str, str]:
    _, *parts = _NAME.split(resources.files("mainspring.sdk").joinpath("markers.sql").read_text())
    return {name: body.strip().removesuffix(";") for name, body in zip(parts[::2], parts[1::2], strict=True)}
