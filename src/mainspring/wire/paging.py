"""Pages of a list."""

from __future__ import annotations

from typing import Generic, TypeVar

from mainspring.wire.message import Response

T = TypeVar("T")


class Page(Response, Generic[T]):
    """One page of a list. `next_cursor` is null on the last page."""

    items: list[T]
    next_cursor: str | None = None
