"""The vault: encrypts and decrypts values, and reads those that a provider keeps."""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.store.secrets import SecretRow
from mainspring.vault.keyring import Bound, KeyMissing, Keyring, Sealed
from mainspring.vault.providers import Provider, ProviderFailed

NO_KEY = "this server has no master key; start it with --secret-key-file, see docs/how-to/secrets.md"


class Vault:
    """Values of secrets. Without a master key it stores none; providers work without one."""

    def __init__(self, keyring: Keyring | None = None, providers: Mapping[str, Provider] | None = None) -> None:
        self._keyring = keyring
        self._providers = dict(providers or {})

    @property
    def has_key(self) -> bool:
        return self._keyring is not None

    @property
    def keyring(self) -> Keyring:
        if self._keyring is None:
            raise KeyMissing(NO_KEY)
        return self._keyring

    @property
    def provider_names(self) -> list[str]:
        return sorted(self._providers)

    def seal(self, value: str, bound: Bound) -> Sealed:
        return self.keyring.seal(value.encode(), bound)

    def open(self, sealed: Sealed, bound: Bound) -> str:
        return self.keyring.open(sealed, bound).decode()

    async def value_of(self, row: SecretRow) -> str:
        """Return the value of a secret. Raises KeyMissing, Tampered or ProviderFailed."""
        if row.provider is None:
            assert row.key_id is not None and row.envelope is not None
            return self.open(Sealed(row.key_id, row.envelope), secret_bound(row.tenant, row.name, row.version))
        provider = self._providers.get(row.provider)
        if provider is None:
            known = ", ".join(self.provider_names) or "none"
            raise ProviderFailed(f"this server has no provider {row.provider!r}; it has {known}")
        assert row.path is not None
        return await provider.read(row.path)

    async def close(self) -> None:
        for provider in self._providers.values():
            await provider.close()


def secret_bound(tenant: int, name: str, version: int) -> Bound:
    return Bound(tenant, "secret", name, version)
