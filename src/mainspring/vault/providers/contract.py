"""What a provider of secrets must do."""

from __future__ import annotations

from typing import Protocol

from mainspring.domain.errors import Conflict

MAX_VALUE_BYTES = 64_000


class ProviderFailed(Conflict):
    """A provider did not return the value: it is unreachable, refuses, or has nothing at the path."""

    code = "secret_provider_failed"


class Provider(Protocol):
    """Reads values by path. Created once per server, from its entry point in `mainspring.secret_providers`.

    `read` raises `ProviderFailed` with a message that contains no value. It may be called concurrently.
    """

    async def read(self, path: str) -> str: ...

    async def close(self) -> None: ...
