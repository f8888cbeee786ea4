"""What a provider of secrets must do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from mainspring.domain.errors import Conflict


class ProviderFailed(Conflict):
    """A provider did not return the value: it is unreachable, refuses, or has nothing at the path."""

    code = "secret_provider_failed"


class Provider(Protocol):
    """Reads values by path. Created once per server process, from the provider file.

    `read` raises `ProviderFailed` with a message that contains no value. It may be called concurrently. The caller
    checks which tenants may read the path, limits the time, and caches values.
    """

    async def read(self, path: str) -> str: ...

    async def close(self) -> None: ...


Factory = Callable[[Mapping[str, Any]], Provider]
"""Creates a provider from its settings in the provider file. Raises Invalid for settings that are wrong."""
