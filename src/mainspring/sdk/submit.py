"""Submits declared jobs: one or many, at once or in the caller's transaction, blocking or with `await`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.client import SubmitFailed
from mainspring.domain.errors import Invalid, NotFound, invalid
from mainspring.domain.params import Param, given_problems
from mainspring.sdk import transactional
from mainspring.sdk.clients import async_client, client
from mainspring.sdk.declaration import Declaration
from mainspring.sdk.handle import Handle
from mainspring.sdk.parameters import params_to_json

R = TypeVar("R", covariant=True)

MAX_KEY_CHARS = 200


class Submitter(Generic[R]):
    """Submits a job with options: `report.options(at=..., key=...).submit(region="us")`.

    All keywords of its methods are parameters of the function, whatever they are called.
    """

    def __init__(
        self,
        declaration: Declaration,
        *,
        at: datetime | str | None = None,
        key: str | None = None,
        conn: Any = None,
    ) -> None:
        self._declaration = declaration
        self._at, self._key, self._conn = _instant(at), _checked_key(key), conn

    def submit(self, /, **params: Any) -> Any:
        """Submit an execution and return its handle; with an asynchronous `conn`, `await` it."""
        if self._conn is not None:
            if transactional.is_async(self._conn):
                return self.submit_async(**params)
            return self._new_handle(transactional.submit_on(self._conn, self._values(params, self._key)))
        try:
            return self._handle(client().trigger(self._declaration.name, self._request(params)))
        except NotFound as error:
            raise _unregistered(self._declaration, error) from None

    async def submit_async(self, /, **params: Any) -> Handle[R]:
        """`submit` for coroutines."""
        if self._conn is not None:
            return self._new_handle(await transactional.submit_on_async(self._conn, self._values(params, self._key)))
        try:
            return self._handle(await (await async_client()).trigger(self._declaration.name, self._request(params)))
        except NotFound as error:
            raise _unregistered(self._declaration, error) from None

    def submit_many(self, params: Iterable[Mapping[str, Any]], *, keys: Iterable[str] | None = None) -> Any:
        """Submit one execution per element of `params`; return their ids in order.

        With an asynchronous `conn`, `await` it.
        """
        if self._conn is not None:
            if transactional.is_async(self._conn):
                return self.submit_many_async(params, keys=keys)
            return transactional.submit_many_on(self._conn, self._many_values(params, keys))
        try:
            return client().submit_many(self._items(params, keys))
        except SubmitFailed as error:
            if any(error.execution_ids):
                raise
            failed = error
        try:
            client().job(self._declaration.name)
        except NotFound as error:
            raise _unregistered(self._declaration, error) from None
        raise failed

    async def submit_many_async(
        self, params: Iterable[Mapping[str, Any]], *, keys: Iterable[str] | None = None
    ) -> list[UUID]:
        """`submit_many` for coroutines."""
        if self._conn is not None:
            return await transactional.submit_many_on_async(self._conn, self._many_values(params, keys))
        shared = await async_client()
        try:
            return await shared.submit_many(self._items(params, keys))
        except SubmitFailed as error:
            if any(error.execution_ids):
                raise
            failed = error
        try:
            await shared.job(self._declaration.name)
        except NotFound as error:
            raise _unregistered(self._declaration, error) from None
        raise failed

    def map(self, /, *iterables: Iterable[Any], **fixed: Any) -> Any:
        """Submit one execution per element of `iterables`, as `map` calls a function; `fixed` goes to each.

        With an asynchronous `conn`, `await` it.
        """
        if self._conn is not None and transactional.is_async(self._conn):
            return self.map_async(*iterables, **fixed)
        return [self._new_handle(found) for found in self.submit_many(self._mapped(iterables, fixed))]

    async def map_async(self, /, *iterables: Iterable[Any], **fixed: Any) -> list[Handle[R]]:
        """`map` for coroutines."""
        return [self._new_handle(found) for found in await self.submit_many_async(self._mapped(iterables, fixed))]

    def _request(self, params: dict[str, Any]) -> wire.RunNow:
        return wire.RunNow(at=self._at, key=self._key, params=self._json(params))

    def _json(self, params: Mapping[str, Any]) -> dict[str, Any] | None:
        given: object = params
        if not isinstance(given, Mapping):
            message = f"{self._declaration.name}: {params!r:.100} is not a mapping of parameters"
            raise invalid("/params", message, hint='for example {"region": "us"}')
        return params_to_json(f"{self._declaration.name}.submit()", params)

    def _many_values(
        self, params: Iterable[Mapping[str, Any]], keys: Iterable[str] | None
    ) -> list[transactional.Values]:
        return [self._values(values, key) for values, key in self._paired(params, keys)]

    def _values(self, params: Mapping[str, Any], key: str | None) -> transactional.Values:
        """Return what function `submit` of the database takes, checked here: an error there ends the transaction."""
        given = self._json(params)
        spec = self._declaration.spec
        declared = {name: msgspec.convert(param, Param) for name, param in spec["params"].items()}
        if problems := given_problems(declared, frozenset(), given or {}, frozenset(spec["task"].get("args", ()))):
            raise Invalid(problems[0].message, problems=tuple(problems))
        at = None if self._at is None else self._at.isoformat()
        return self._declaration.name, None if given is None else msgspec.json.encode(given).decode(), at, key

    def _items(self, params: Iterable[Mapping[str, Any]], keys: Iterable[str] | None) -> Iterable[wire.BatchItem]:
        return (
            wire.BatchItem(job=self._declaration.name, at=self._at, key=key, params=self._json(values))
            for values, key in self._paired(params, keys)
        )

    def _paired(
        self, params: Iterable[Mapping[str, Any]], keys: Iterable[str] | None
    ) -> Iterator[tuple[Mapping[str, Any], str | None]]:
        """Pair the parameters of each execution with its key."""
        if self._key is not None:
            raise TypeError("many executions cannot share one key=: pass keys=, one for each")
        if keys is None:
            return ((one, None) for one in params)
        return ((one, _checked_key(key)) for one, key in _together("params and keys=", params, keys))

    def _mapped(self, iterables: tuple[Iterable[Any], ...], fixed: dict[str, Any]) -> Iterable[dict[str, Any]]:
        if not iterables:
            raise TypeError(f"{self._declaration.name}.map() needs at least one iterable")
        names = [name for name in self._declaration.spec["params"] if name not in fixed][: len(iterables)]
        if len(names) < len(iterables):
            raise TypeError(
                f"{self._declaration.name}.map() got {len(iterables)} iterables for {len(names)} parameters"
            )
        together = _together("the iterables of map()", *iterables)
        return (dict(zip(names, values, strict=True)) | fixed for values in together)

    def _handle(self, made: wire.Execution) -> Handle[R]:
        return Handle(made.execution_id, made.job, execution=made, returns=self._declaration.returns)

    def _new_handle(self, execution_id: UUID) -> Handle[R]:
        return Handle(execution_id, self._declaration.name, returns=self._declaration.returns)


def start(workflow: str, *, key: str | None, params: dict[str, Any]) -> wire.Run:
    given = params_to_json(f"{workflow}.start()", params)
    try:
        return client().start_run(workflow, given, key=_checked_key(key))
    except NotFound as error:
        raise _unapplied(error) from None


async def start_async(workflow: str, *, key: str | None, params: dict[str, Any]) -> wire.Run:
    given = params_to_json(f"{workflow}.start()", params)
    try:
        return await (await async_client()).start_run(workflow, given, key=_checked_key(key))
    except NotFound as error:
        raise _unapplied(error) from None


def _together(what: str, *iterables: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the elements of all, as `zip` does; they must have the same length."""
    end = object()
    for values in zip_longest(*iterables, fillvalue=end):
        if any(value is end for value in values):
            raise ValueError(f"one of {what} is shorter than the others: there must be one element for each execution")
        yield values


def _unregistered(declaration: Declaration, error: NotFound) -> NotFound:
    module = declaration.spec["task"]["function"].partition(":")[0]
    if module == "__main__":
        remedy = "it is declared in a script or notebook: move it to a module, then start `mainspring worker -m MODULE`"
    else:
        remedy = f"register it by starting a worker: mainspring worker -m {module}"
    return NotFound(f"{error.message}; {remedy}")


def _unapplied(error: NotFound) -> NotFound:
    return NotFound(f"{error.message}; apply it first: mainspring workflows apply FILE.py")


def _instant(at: datetime | str | None) -> datetime | None:
    """Parse an instant. Without an offset it is UTC, as on the command line."""
    found: object = at
    if isinstance(at, str):
        with suppress(ValueError):
            found = datetime.fromisoformat(at)
    if found is None:
        return None
    if not isinstance(found, datetime):
        raise invalid(
            "/at",
            f"at={at!r} is not an instant",
            hint="pass a datetime, or ISO 8601 such as 2026-12-01T09:00 (UTC) or 2026-12-01T09:00+01:00",
        )
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _checked_key(key: str | None) -> str | None:
    given: object = key
    if given is not None and (not isinstance(given, str) or not 0 < len(given) <= MAX_KEY_CHARS):
        raise invalid("/key", f"key={key!r} is not a key", hint=f"a key is a text of 1 to {MAX_KEY_CHARS} characters")
    return key
