"""Submits declared jobs through one shared client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from itertools import repeat
from typing import Any
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.client import Client, SubmitFailed
from mainspring.domain.errors import NotFound
from mainspring.sdk.job import Declaration


def submit(
    declaration: Declaration, *, at: datetime | str | None, key: str | None, params: dict[str, Any]
) -> wire.Execution:
    request = wire.RunNow(at=_instant(at), key=key, params=msgspec.to_builtins(params) or None)
    try:
        return client().trigger(declaration.name, request)
    except NotFound as error:
        raise _unregistered(declaration, error) from None


def submit_many(
    declaration: Declaration,
    params: Iterable[Mapping[str, Any]],
    *,
    at: datetime | str | None,
    keys: Iterable[str] | None,
) -> list[UUID]:
    due = _instant(at)
    paired = zip(params, repeat(None), strict=False) if keys is None else zip(params, keys, strict=True)
    items = (
        wire.BatchItem(job=declaration.name, at=due, key=key, params=msgspec.to_builtins(dict(values)) or None)
        for values, key in paired
    )
    try:
        return client().submit_many(items)
    except SubmitFailed as error:
        if not any(error.execution_ids):
            _check_registered(declaration)
        raise


def _check_registered(declaration: Declaration) -> None:
    try:
        client().job(declaration.name)
    except NotFound as error:
        raise _unregistered(declaration, error) from None


def _unregistered(declaration: Declaration, error: NotFound) -> NotFound:
    module = declaration.spec["task"]["function"].partition(":")[0]
    return NotFound(f"{error.message}; register it by starting a worker: mainspring worker -m {module}")


def start(workflow: str, *, key: str | None, params: dict[str, Any]) -> wire.Run:
    try:
        return client().start_run(workflow, msgspec.to_builtins(params) or None, key=key)
    except NotFound as error:
        raise NotFound(f"{error.message}; apply it first: mainspring workflows apply FILE.py") from None


@cache
def client() -> Client:
    """Return the client of this process; it is safe to use after a fork."""
    return Client()


def _instant(at: datetime | str | None) -> datetime | None:
    """Parse an instant. Without an offset it is UTC, as on the command line."""
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    return at.replace(tzinfo=UTC) if at is not None and at.tzinfo is None else at
