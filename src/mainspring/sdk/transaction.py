"""`ms.transaction`: effects in the user's own database that happen once, however often an execution is tried.

A row with the execution's id is written in the same transaction as the effects. An attempt that finds it knows that the
effects are there: nothing of the body runs, and the execution ends with the result that was stored. Two attempts at the
same time are ordered by the row's unique key: the second waits for what the first does.
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

from mainspring.sdk.context import Executing, NotExecuting, context, current

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_PLACE: dict[str, Callable[[int], str]] = {
    "qmark": lambda n: "?",
    "format": lambda n: "%s",
    "pyformat": lambda n: "%s",
    "numeric": lambda n: f":{n}",
    "asyncpg": lambda n: f"${n}",
}


class AlreadyDone(BaseException):
    """The effects were committed by an earlier attempt; the execution ends with the `result` that was stored then.

    Not an `Exception`, so that nothing on its way mistakes it for a failure. Leave it alone.
    """

    def __init__(self, key: str, result: str | None) -> None:
        super().__init__(f"the effects of {key} were committed before")
        self.stored = result

    @property
    def result(self) -> Any:
        return None if self.stored is None else msgspec.json.decode(self.stored)


class _AndLeave(AlreadyDone, SystemExit):
    """In a program of its own: it ends as one that succeeded."""

    code = 0


class Transaction:
    """Use it as `with` or, for an asynchronous driver, as `async with`. `result` is kept with the effects."""

    def __init__(self, connection: Any, key: str | None) -> None:
        self.result: Any = None
        self._connection = connection
        self._executing: Executing | None = current.get()
        self._key, self._attempt = _identity(key)
        self._native: Any = None  # asyncpg's transaction

    def __enter__(self) -> Transaction:
        if _is_async(self._connection):
            raise TypeError("this connection is asynchronous: write `async with ms.transaction(...)`")
        self._check()
        if self._key is not None:
            try:
                if self._run("mark", self._key, self._attempt).rowcount == 0:
                    raise self._done(self._run("find", self._key).fetchone())
            except BaseException:
                self._connection.rollback()
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
            raise TypeError("this connection is not asynchronous: write `with ms.transaction(...)`")
        self._check()
        await self._begin()
        if self._key is not None:
            try:
                if await self._marked():
                    raise self._done(await self._found())
            except BaseException:
                await self._end("rollback")
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
        """Refuses what would commit the effects and the marker apart."""
        if self._executing is not None and self._executing.committed:
            raise RuntimeError("an execution has one ms.transaction: put all effects into it")
        connection = self._connection
        alone = getattr(connection, "isolation_level", "") is None and type(connection).__module__ == "sqlite3"
        if alone or getattr(connection, "autocommit", False) is True:
            raise RuntimeError("the connection commits every statement by itself: turn autocommit off")
        if _is_asyncpg(connection) and connection.is_in_transaction():
            raise RuntimeError("the connection is in a transaction already: ms.transaction commits one of its own")

    def _done(self, row: Any) -> AlreadyDone:
        assert self._key is not None
        self._committed()
        return (_AndLeave if self._executing is None else AlreadyDone)(self._key, None if row is None else row[0])

    def _committed(self) -> None:
        if self._executing is not None:
            self._executing.committed = True

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
        """Whether somebody has been here before."""
        told = await self._await("mark", self._key, self._attempt)
        return bool(told == "INSERT 0 0" if self._native is not None else told.rowcount == 0)

    async def _found(self) -> Any:
        if self._native is not None:
            return await self._connection.fetchrow(_statement("find", self._connection), self._key)
        return await (await self._await("find", self._key)).fetchone()

    async def _end(self, how: str) -> None:
        await getattr(self._native or self._connection, how)()


def transaction(connection: Any, *, key: str | None = None) -> Transaction:
    """A transaction on your connection whose effects happen once: `with ms.transaction(connection) as tx: ...`.

    It commits at the end of the block, and rolls back when the block raises. Set `tx.result` to what the function
    returns: that is the result if a later attempt finds the work done. `key` stands for the work instead of the
    execution's id, if several executions may mean the same. Needs the table of `create_marker_table`. Outside an
    execution and without a key it is an ordinary transaction.
    """
    return Transaction(connection, key)


def create_marker_table(connection: Any) -> Awaitable[None] | None:
    """Makes the table that `ms.transaction` needs, unless it exists; `await` it on an asynchronous connection."""
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
    return msgspec.json.encode(result).decode()


def _is_asyncpg(connection: Any) -> bool:
    return hasattr(connection, "is_in_transaction")


def _is_async(connection: Any) -> bool:
    return _is_asyncpg(connection) or inspect.iscoroutinefunction(getattr(connection, "commit", None))


def _statement(name: str, connection: Any) -> str:
    module = sys.modules.get(type(connection).__module__.partition(".")[0])
    style = "asyncpg" if _is_asyncpg(connection) else str(getattr(module, "paramstyle", "format"))
    if style not in _PLACE:
        raise TypeError(f"ms.transaction knows no drivers with the parameter style {style!r}")
    text, n = _statements()[name], 0
    while "?" in text and style != "qmark":
        n += 1
        text = text.replace("?", _PLACE[style](n), 1)
    return text


@cache
def _statements() -> dict[str, str]:
    _, *parts = _NAME.split(resources.files("mainspring.sdk").joinpath("markers.sql").read_text())
    return {name: body.strip().removesuffix(";") for name, body in zip(parts[::2], parts[1::2], strict=True)}
