"""The vault: encrypts and decrypts values, and reads those that a provider keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec

from mainspring.domain.secret import whole_reference
from mainspring.store.secret_fields import Holders, SecretFields
from mainspring.store.secrets import SecretRow
from mainspring.vault.keyring import Bound, KeyMissing, Keyring, Sealed
from mainspring.vault.providers import GuardedProvider, ProviderFailed

NO_KEY = "this server has no master key; start it with --secret-key-file, see docs/how-to/secrets.md"


class Vault:
    """Values of secrets. Without a master key it stores none; providers work without one."""

    def __init__(self, keyring: Keyring | None = None, providers: Mapping[str, GuardedProvider] | None = None) -> None:
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

    def path_refusal(self, provider: str, path: str, *, tenant: str) -> str | None:
        """Return why a tenant, given by name, may not refer to a path of a provider that this server has; or None."""
        return self._providers[provider].refusal(tenant, path)

    def seal(self, value: str, bound: Bound) -> Sealed:
        return self.keyring.seal(value.encode(), bound)

    def open(self, sealed: Sealed, bound: Bound) -> str:
        return self.keyring.open(sealed, bound).decode()

    def seal_fields(
        self, fields: Mapping[str, Any], bound: Bound, *, before: SecretFields | None = None
    ) -> SecretFields:
        """Encrypt the texts among fields, except references. Raises KeyMissing if that needs a key.

        Without a key, fields stay in plain text if `before` has them so: they are not new.
        """
        values = {name: value for name, value in fields.items() if is_value(value)}
        plain = {name: value for name, value in fields.items() if name not in values}
        if not values:
            return SecretFields(plain)
        if self._keyring is None and before is not None and values.items() <= before.plain.items():
            return SecretFields(dict(fields))
        sealed = self.keyring.seal(msgspec.json.encode(values), bound)
        return SecretFields(plain, sealed.key_id, sealed.envelope)

    def open_fields(self, stored: SecretFields, bound: Bound) -> dict[str, Any]:
        """Return the fields with their values; references stay. Raises KeyMissing or Tampered."""
        if stored.key_id is None or stored.envelope is None:
            return dict(stored.plain)
        sealed = self.keyring.open(Sealed(stored.key_id, stored.envelope), bound)
        return {**msgspec.json.decode(sealed, type=dict[str, str]), **stored.plain}

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
        return await provider.read(row.tenant_name, row.path)

    async def close(self) -> None:
        for provider in self._providers.values():
            await provider.close()


def is_value(field: Any) -> bool:
    """Whether a field is a secret value, and not a reference or something else."""
    return isinstance(field, str) and whole_reference(field) is None


def holder_bound(of: Holders, holder_id: UUID, *, tenant: int, name: str) -> Bound:
    """What the secret fields of a channel or trigger are bound to."""
    return Bound(tenant, of.removesuffix("s"), name, row_id=str(holder_id))


def secret_bound(tenant: int, name: str, version: int) -> Bound:
    return Bound(tenant, "secret", name, version)
