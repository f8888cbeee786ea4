"""Issues tokens with chosen scopes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

Issue = Callable[..., Awaitable[str]]
