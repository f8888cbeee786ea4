"""`conn=`: submits executions on the caller's own connection, committed or rolled back with its transaction.

The caller's connection runs function `submit` of Mainspring's schema, which writes a row for each. So the connection
must be to Mainspring's database, and its role must be allowed to: `SELECT mainspring.allow_submit('role')`. The leading
scheduler turns committed rows into executions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import cache
from importlib import resources
from typing import Any, Protocol
from uuid import UUID

import msgspec

from mainspring.domain.errors import Conflict, Forbidden, Invalid, MainspringError, NotFound, Problem

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_PARAMETERS = {"submit": ("job", "params", "at", "key"), "submit_many": ("items",)}
_MANY = 1000
"""Executions per statement."""
_BY_STATE: dict[str, type[MainspringError]] = {
    "MS403": Forbidden,
    "MS404": NotFound,
    "MS409": Conflict,
    "MS422": Invalid,
}
_NO_FUNCTION = ("3F000", "42883")  # no such schema, no such function
_NO_PRIVILEGE = "42501"
_KNOWN = "asyncpg, psycopg, SQLAlchemy (connection or session) or Django"

Values = tuple[str | None, ...]
"""Job, params as JSON, instant as ISO 8601, key: all text, so that no codec of a driver changes them."""


class AsyncConnection(Protocol):
    """A connection or session whose `execute` is awaited."""

    def execute(self, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]: ...


def submit_on(connection: Any, values: Values) -> UUID:
    """Submit on a blocking connection; return the id of the execution."""
    return UUID(_run(connection, "submit", values))


async def submit_on_async(connection: Any, values: Values) -> UUID:
    """Submit on an asynchronous connection; return the id of the execution."""
    return UUID(await _run_async(connection, "submit", values))


def submit_many_on(connection: Any, items: Sequence[Values]) -> list[UUID]:
    """Submit many on a blocking connection, 1,000 per statement; return their ids in order."""
    return [found for batch in _batches(items) for found in _ids(_run(connection, "submit_many", batch))]


async def submit_many_on_async(connection: Any, items: Sequence[Values]) -> list[UUID]:
    """Submit many on an asynchronous connection, 1,000 per statement; return their ids in order."""
    return [found for batch in _batches(items) for found in _ids(await _run_async(connection, "submit_many", batch))]


def _batches(items: Sequence[Values]) -> Iterator[Values]:
    """Parameters of the statement for many: a JSON list of items, in which `params` is JSON and not text."""
    for start in range(0, len(items), _MANY):
        rows = [
            (job, None if params is None else msgspec.Raw(params.encode()), at, key)
            for job, params, at, key in items[start : start + _MANY]
        ]
        yield (msgspec.json.encode(rows).decode(),)


def _ids(found: str) -> list[UUID]:
    return msgspec.json.decode(found, type=list[UUID])


def _run(connection: Any, name: str, values: Values) -> str:
    execute, is_async = _driver_of(connection)
    if is_async:
        raise TypeError(f"this connection is asynchronous: await {name}_async(...), or await {name}(conn=...)")
    try:
        return str(execute(connection, name, values))
    except Exception as error:
        raise _explained(error) from error


async def _run_async(connection: Any, name: str, values: Values) -> str:
    execute, is_async = _driver_of(connection)
    if not is_async:
        raise TypeError(f"this connection is not asynchronous: use {name}(conn=...) without await")
    try:
        return str(await execute(connection, name, values))
    except Exception as error:
        raise _explained(error) from error


def is_async(connection: Any) -> bool:
    return _driver_of(connection)[1]


# Drivers ------------------------------------------------------------------------------------------------


def _driver_of(connection: Any) -> tuple[Callable[[Any, str, Values], Any], bool]:
    """Return how to run the statement on a connection, and whether that is awaited."""
    kinds = [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(connection).__mro__]
    packages = {package for package, _ in kinds}
    names = {name for _, name in kinds}
    if "sqlalchemy" in packages:
        if names & {"AsyncConnection", "AsyncSession", "async_scoped_session"}:
            return _on_sqlalchemy_async, True
        return _on_sqlalchemy, False
    if "asyncpg" in packages:
        return _on_asyncpg, True
    if "psycopg" in packages:
        return (_on_psycopg_async, True) if "AsyncConnection" in names else (_on_psycopg, False)
    if "psycopg2" in packages or "django" in packages:
        return _on_cursor, False
    raise TypeError(f"conn= takes a PostgreSQL connection of {_KNOWN}, not a {type(connection).__name__}")


def _on_sqlalchemy(connection: Any, name: str, values: Values) -> Any:
    return connection.execute(_sqlalchemy_text(name), dict(zip(_PARAMETERS[name], values, strict=True))).scalar_one()


async def _on_sqlalchemy_async(connection: Any, name: str, values: Values) -> Any:
    found = await connection.execute(_sqlalchemy_text(name), dict(zip(_PARAMETERS[name], values, strict=True)))
    return found.scalar_one()


async def _on_asyncpg(connection: Any, name: str, values: Values) -> Any:
    if not connection.is_in_transaction():
        raise _not_in_a_transaction("async with conn.transaction():")
    return await connection.fetchval(_statement(name, lambda _, number: f"${number}"), *values)


def _on_psycopg(connection: Any, name: str, values: Values) -> Any:
    with _psycopg_cursor(connection) as cursor:
        cursor.execute(_statement(name, _percent), values)
        return cursor.fetchone()[0]


async def _on_psycopg_async(connection: Any, name: str, values: Values) -> Any:
    async with _psycopg_cursor(connection) as cursor:
        await cursor.execute(_statement(name, _percent), values)
        return (await cursor.fetchone())[0]


def _psycopg_cursor(connection: Any) -> Any:
    from psycopg.pq import TransactionStatus
    from psycopg.rows import tuple_row

    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise _not_in_a_transaction("with conn.transaction():")
    return connection.cursor(row_factory=tuple_row)


def _on_cursor(connection: Any, name: str, values: Values) -> Any:
    """Any driver with `%s`: psycopg2, or the connection of Django."""
    if not getattr(connection, "in_atomic_block", not connection.autocommit):
        raise _not_in_a_transaction("with transaction.atomic():" if hasattr(connection, "vendor") else "autocommit off")
    if getattr(connection, "vendor", "postgresql") != "postgresql":
        raise TypeError(f"conn= needs PostgreSQL; this connection is to {connection.vendor}")
    with connection.cursor() as cursor:
        cursor.execute(_statement(name, _percent), values)
        return cursor.fetchone()[0]


def _not_in_a_transaction(begin: str) -> RuntimeError:
    return RuntimeError(
        f"conn= submits in a transaction of yours, and this connection is in none: begin one, `{begin}`; "
        "or leave conn= out to submit at once"
    )


# The statement ------------------------------------------------------------------------------------------


def _percent(_: str, __: int) -> str:
    return "%s"


def _statement(name: str, placeholder: Callable[[str, int], str]) -> str:
    text = _statements()[name]
    for number, parameter in enumerate(_PARAMETERS[name], 1):
        text = text.replace(f":{parameter} ", f"{placeholder(parameter, number)} ")
    return text


@cache
def _sqlalchemy_text(name: str) -> Any:
    from sqlalchemy import text

    return text(_statements()[name])


@cache
def _statements() -> dict[str, str]:
    _, *parts = _NAME.split(resources.files("mainspring.sdk").joinpath("submissions.sql").read_text())
    return {name: body.strip().removesuffix(";") for name, body in zip(parts[::2], parts[1::2], strict=True)}


# Errors -------------------------------------------------------------------------------------------------


def _explained(error: Exception) -> Exception:
    """Return the error of the function as an error of Mainspring; any other unchanged."""
    for cause in _causes(error):
        state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        if state in _BY_STATE:
            message, hint = _said(cause)
            return _BY_STATE[state](message, problems=(Problem("", message, hint),))
        if state in _NO_FUNCTION:
            return NotFound(
                "this connection's database has no function mainspring.submit: connect to the database that the server "
                "uses (--database-url), and migrate it (mainspring db migrate); with a database of your own, submit "
                "after the commit, without conn="
            )
        if state == _NO_PRIVILEGE:
            return Forbidden(
                f"{_said(cause)[0]}: the role of this connection may not submit; as the owner of Mainspring's schema, "
                "run: SELECT mainspring.allow_submit('ROLE')"
            )
    return error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that it wraps: SQLAlchemy and Django wrap the driver's."""
    for _ in range(5):
        if error is None:
            return
        yield error
        error = getattr(error, "orig", None) or error.__cause__


def _said(error: BaseException) -> tuple[str, str]:
    """Return message and hint of the server."""
    diagnosis = getattr(error, "diag", None)
    if diagnosis is not None:
        return diagnosis.message_primary or str(error), diagnosis.message_hint or ""
    cause = error if hasattr(error, "hint") else error.__cause__ or error  # asyncpg below SQLAlchemy
    return str(getattr(cause, "message", None) or cause), str(getattr(cause, "hint", None) or "")
