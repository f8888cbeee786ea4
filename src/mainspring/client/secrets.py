"""Client methods for secrets. Values are sent and never returned."""

from __future__ import annotations

from mainspring import wire
from mainspring.client.paths import path_of
from mainspring.client.transport import Connected, Params


class SecretMethods(Connected):
    async def secrets(self, *, limit: int | None = None, cursor: str | None = None) -> wire.Page[wire.Secret]:
        params: Params = {"limit": limit, "cursor": cursor}
        return await self._transport.request(wire.Page[wire.Secret], "GET", "/api/v1/secrets", params=params)

    async def secret(self, name: str) -> wire.Secret:
        return await self._transport.request(wire.Secret, "GET", path_of("secrets", name))

    async def put_secret(self, name: str, secret: wire.SecretSpec) -> wire.Secret:
        """Create or replace a secret; an omitted value stays as it is."""
        return await self._transport.request(wire.Secret, "PUT", path_of("secrets", name), body=secret)

    async def rotate_secret(self, name: str, value: str) -> wire.Secret:
        body = wire.RotateSecret(value=value)
        return await self._transport.request(wire.Secret, "POST", path_of("secrets", name, "rotate"), body=body)

    async def delete_secret(self, name: str) -> None:
        await self._transport.send("DELETE", path_of("secrets", name))

    async def secret_keys(self) -> wire.SecretKeys:
        return await self._transport.request(wire.SecretKeys, "GET", "/api/v1/secret-keys")

    async def encrypt_secrets(self) -> wire.SecretKeys:
        """Encrypt the secrets of channels and triggers that are in plain text."""
        return await self._transport.request(wire.SecretKeys, "POST", "/api/v1/secret-keys/encrypt", wait_s=600.0)

    async def rotate_secret_key(self) -> wire.SecretKeys:
        """Wrap every value in the current master key."""
        return await self._transport.request(wire.SecretKeys, "POST", "/api/v1/secret-keys/rotate", wait_s=600.0)
