"""Values in the environment of the server, such as those that an orchestrator injects."""

from __future__ import annotations

import os

import msgspec

from mainspring.vault.providers.contract import ProviderFailed

OWN = "MAINSPRING_"
"""Variables of the server itself, such as its database URL and its master key. No tenant reads one."""


class EnvironmentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """It has no settings."""


class EnvironmentProvider:
    """Reads variables of the server's environment; the path is a name."""

    def __init__(self, _: EnvironmentSettings) -> None:
        pass

    async def read(self, path: str) -> str:
        value = None if path.startswith(OWN) else os.environ.get(path)
        if value is None:
            raise ProviderFailed(f"the server has no variable {path}")
        return value

    async def close(self) -> None:
        pass
