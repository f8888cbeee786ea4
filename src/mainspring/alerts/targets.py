"""Targets of channels: encrypted for the database, and opened for use with their secrets."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import msgspec

from mainspring.domain.channel import SECRETS, Target, channel_problems, joined, kind_of, split
from mainspring.domain.errors import Conflict
from mainspring.domain.secret import Destinations, whole_reference
from mainspring.store.channels import StoredTarget
from mainspring.store.db import Connection, Database
from mainspring.store.secret_fields import SecretFields
from mainspring.vault.references import Refusal, check_references, resolved
from mainspring.vault.vault import Vault, holder_bound


class BadSecret(Conflict):
    """The value of a secret cannot be used by the channel that refers to it."""

    code = "bad_secret"


def sealed(
    vault: Vault, target: Target, *, tenant: int, channel_id: UUID, name: str, before: SecretFields | None = None
) -> StoredTarget:
    """Encrypt the secrets of a target. Raises KeyMissing if it has new ones and there is no master key."""
    shown, hidden = split(target)
    bound = holder_bound("channels", channel_id, tenant=tenant, name=name)
    fields = vault.seal_fields(hidden, bound, before=before)
    return StoredTarget(channel_id, tenant, name, kind_of(target), shown, fields)


def secrets_of(vault: Vault, stored: StoredTarget) -> dict[str, Any]:
    """Return the secret fields of a channel: values, or references. Raises KeyMissing or Tampered."""
    bound = holder_bound("channels", stored.channel_id, tenant=stored.tenant, name=stored.channel)
    opened = vault.open_fields(stored.secrets, bound)
    return {field: opened[field] for field in SECRETS[stored.kind] if field in opened}


async def opened(database: Database, vault: Vault, stored: StoredTarget) -> Target:
    """Return the target with its secrets. Raises a MainspringError whose message contains no value."""
    fields = secrets_of(vault, stored)
    target = joined(stored.kind, stored.shown, fields)
    values = await resolved(database, vault, fields, _refusal(stored.channel, target), tenant=stored.tenant)
    if values == fields:
        return target
    reference = next(fields[field] for field in values if values[field] != fields[field])
    try:
        target = joined(stored.kind, stored.shown, values)
    except msgspec.ValidationError:
        raise BadSecret(f"the value of {reference} is too long for a {stored.kind} channel") from None
    if problems := channel_problems(stored.channel, target, ()):
        raise BadSecret(f"the value of {reference} cannot be used here: {problems[0].message}")
    return target


async def check_secrets(connection: Connection, name: str, target: Target, *, tenant: int) -> None:
    """Raise Invalid for references to secrets that the channel may not use."""
    await check_references(connection, split(target)[1], _refusal(name, target), tenant=tenant, at="/target")


def _refusal(name: str, target: Target) -> Refusal:
    host = _host(target)

    def refusal(to: Destinations, value: str | None) -> str | None:
        if host is not None or value is None:
            return to.channel_refusal(name, host)
        return to.channel_refusal(name, urlsplit(value).hostname or "")

    return refusal


def _host(target: Target) -> str | None:
    """Return the host that the channel calls; None if a secret has it."""
    if (host := getattr(target, "host", None)) is not None:
        return str(host)
    url = getattr(target, "url", None)
    return None if url is None or whole_reference(url) is not None else urlsplit(url).hostname
