"""Submits declared jobs through one shared client."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec

from mainspring import wire
from mainspring.client import Client
from mainspring.domain.errors import NotFound
from mainspring.sdk.job import Declaration


def submit(
    declaration: Declaration, *, at: datetime | str | None, key: str | None, params: dict[str, Any]
) -> wire.Execution:
    request = wire.RunNow(at=_instant(at), key=key, params=msgspec.to_builtins(params) or None)
    try:
        return client(os.getpid()).trigger(declaration.name, request)
    except NotFound as error:
        module = declaration.spec["task"]["function"].partition(":")[0]
        raise NotFound(f"{error.message}; register it by starting a worker: mainspring worker -m {module}") from None


def start(workflow: str, *, key: str | None, params: dict[str, Any]) -> wire.Run:
    try:
        return client(os.getpid()).start_run(workflow, msgspec.to_builtins(params) or None, key=key)
    except NotFound as error:
        raise NotFound(f"{error.message}; apply it first: mainspring workflows apply FILE.py") from None


@cache
def client(pid: int) -> Client:
    """Return the client of this process: its thread does not survive a fork."""
    return Client()


def _instant(at: datetime | str | None) -> datetime | None:
    """Parse an instant. Without an offset it is UTC, as on the command line."""
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    return at.replace(tzinfo=UTC) if at is not None and at.tzinfo is None else at
