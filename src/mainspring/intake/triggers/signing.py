"""Signing secrets of webhooks: encrypted for the database, and opened to verify a request."""

from __future__ import annotations

from uuid import UUID

import msgspec

from mainspring.domain.secret import Destinations
from mainspring.domain.trigger import TriggerSecrets, secret_problem
from mainspring.store.db import Connection, Database
from mainspring.store.secret_fields import SecretFields
from mainspring.store.triggers import TriggerRow
from mainspring.vault.references import Refusal, SecretRefused, check_references, references_in, resolved
from mainspring.vault.vault import Vault, holder_bound


def sealed(vault: Vault, secrets: TriggerSecrets, *, tenant: int, trigger_id: UUID, name: str) -> SecretFields:
    """Encrypt the secrets of a trigger. Raises KeyMissing if there is no master key."""
    bound = holder_bound("triggers", trigger_id, tenant=tenant, name=name)
    return vault.seal_fields(msgspec.to_builtins(secrets), bound)


def secrets_of(vault: Vault, row: TriggerRow) -> TriggerSecrets:
    """Return the secrets of a trigger: values, or references. Raises KeyMissing or Tampered."""
    bound = holder_bound("triggers", row.trigger_id, tenant=row.tenant, name=row.name)
    return msgspec.convert(vault.open_fields(row.secrets, bound), TriggerSecrets)


async def active_secrets(database: Database, vault: Vault, row: TriggerRow, *, now_s: float) -> list[str]:
    """Return the secrets with which a request may be signed now. Raises a MainspringError without a value."""
    active = {str(place): secret for place, secret in enumerate(secrets_of(vault, row).active(now_s))}
    values = await resolved(database, vault, active, _refusal(row.name), tenant=row.tenant)
    for place, name in references_in(active).items():
        if (problem := secret_problem(values[place], row.spec.source)) is not None:
            raise SecretRefused(f"the value of the secret {name!r} cannot be used here: {problem.message}")
    return list(values.values())


async def check_reference(connection: Connection, name: str, secret: str | None, *, tenant: int) -> None:
    """Raise Invalid for a reference to a secret that the trigger may not use."""
    await check_references(connection, {"secret": secret}, _refusal(name), tenant=tenant, at="")


def _refusal(trigger: str) -> Refusal:
    def refusal(to: Destinations, _: str | None) -> str | None:
        return to.trigger_refusal(trigger)

    return refusal
