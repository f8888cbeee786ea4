"""Create, rotate and delete secrets; wrap them in another master key."""

from __future__ import annotations

from mainspring import wire
from mainspring.domain.audit import changes
from mainspring.domain.errors import Conflict, Invalid, Problem, invalid
from mainspring.domain.secret import Destinations, destination_problems, name_problems, value_problems
from mainspring.store import audit, secrets
from mainspring.store.db import Connection, Database, Taken
from mainspring.store.secrets import NewSecret, SealedRow, SecretRow
from mainspring.vault.keyring import Keyring, Sealed
from mainspring.vault.vault import Vault, secret_bound
from mainspring.views import secrets as secret_views
from mainspring.views.secrets import shown, unknown

REWRAP_BATCH = 200
AUDITED = ("description", "jobs", "queues", "hosts", "provider", "path")


async def put(
    database: Database, vault: Vault, name: str, spec: wire.SecretSpec, *, tenant: int, by: str
) -> wire.Secret:
    """Create a secret, or replace it. Without a value, the stored one stays."""
    to = Destinations(spec.jobs, spec.queues, spec.hosts)
    _refuse([*name_problems(name), *destination_problems(to), *_source_problems(vault, spec)])
    try:
        async with database.transaction() as connection:
            row = await secrets.lock_secret(connection, tenant=tenant, name=name)
            if row is None:
                await _create(connection, vault, name, spec, to, tenant=tenant, by=by)
            else:
                await _replace(connection, vault, row, spec, to, by=by)
    except Taken:
        raise Conflict(f"the secret {name!r} was created meanwhile; try again", code="name_taken") from None
    return await secret_views.get(database, name, tenant=tenant)


async def rotate(database: Database, vault: Vault, name: str, value: str, *, tenant: int, by: str) -> wire.Secret:
    """Give a secret a new value. Attempts that start from now on get it; the old one is gone."""
    _refuse(value_problems(value))
    async with database.transaction() as connection:
        row = await secrets.lock_secret(connection, tenant=tenant, name=name)
        if row is None:
            raise unknown(name)
        if row.provider is not None:
            raise Conflict(f"the provider {row.provider!r} keeps the value of {name!r}; change it there")
        version = row.version + 1
        new = _stored(vault, name, version, value, row.description, row.to, tenant=tenant)
        await secrets.update_secret(
            connection, tenant=tenant, name=name, seen=row.version, version=version, new=new, by=by
        )
        await audit.record(connection, "secret.rotate", name, tenant=tenant, by=by, name=name, version=version)
    return await secret_views.get(database, name, tenant=tenant)


async def delete(database: Database, name: str, *, tenant: int, by: str) -> None:
    async with database.transaction() as connection:
        if not await secrets.delete_secret(connection, tenant=tenant, name=name):
            raise unknown(name)
        await audit.record(connection, "secret.delete", name, tenant=tenant, by=by, name=name)


async def keys(database: Database, vault: Vault) -> wire.SecretKeys:
    """The master keys, and how many values each protects."""
    async with database.connection() as connection:
        used = await secrets.count_by_key(connection)
    known = {key_id: used.pop(key_id, 0) for key_id in vault.keyring.ids}
    return wire.SecretKeys(current=vault.keyring.current, keys=known | used)


async def rotate_key(database: Database, vault: Vault, *, tenant: int, by: str) -> wire.SecretKeys:
    """Wrap every value in the current master key, a batch at a time; repeatable after an interruption."""
    vault.keyring.reload()
    count = 0
    while wrapped := await _rewrap_batch(database, vault.keyring):
        count += wrapped
    async with database.transaction() as connection:
        current = vault.keyring.current
        await audit.record(connection, "secret.rotate_key", current, tenant=tenant, by=by, name=current, values=count)
    found = await keys(database, vault)
    return wire.SecretKeys(current=found.current, keys=found.keys, rewrapped=count)


async def _rewrap_batch(database: Database, keyring: Keyring) -> int:
    async with database.transaction() as connection:
        rows = await secrets.secrets_under_other_keys(connection, key_id=keyring.current, limit=REWRAP_BATCH)
        if rows:
            envelopes = [_rewrapped(keyring, row) for row in rows]
            await secrets.rewrap_secrets(connection, key_id=keyring.current, rows=rows, envelopes=envelopes)
        return len(rows)


def _rewrapped(keyring: Keyring, row: SealedRow) -> bytes:
    bound = secret_bound(row.tenant, row.name, row.version)
    return keyring.wrap_again(Sealed(row.key_id, row.envelope), bound).envelope


async def _create(
    connection: Connection,
    vault: Vault,
    name: str,
    spec: wire.SecretSpec,
    to: Destinations,
    *,
    tenant: int,
    by: str,
) -> None:
    if spec.provider is not None:
        new = NewSecret(spec.description, to, spec.provider, spec.path)
    elif spec.value is not None:
        new = _stored(vault, name, 1, spec.value, spec.description, to, tenant=tenant)
    else:
        raise invalid("/value", f"there is no secret {name!r}, so a value is needed", hint="send value, or provider")
    await secrets.insert_secret(connection, tenant=tenant, name=name, new=new, by=by)
    details = {field: getattr(spec, field) for field in AUDITED if getattr(spec, field)}
    await audit.record(connection, "secret.create", name, tenant=tenant, by=by, name=name, version=1, **details)


async def _replace(
    connection: Connection, vault: Vault, row: SecretRow, spec: wire.SecretSpec, to: Destinations, *, by: str
) -> None:
    version = row.version + 1
    if spec.provider is not None:
        moved = (spec.provider, spec.path) != (row.provider, row.path)
        version = version if moved else row.version
        new = NewSecret(spec.description, to, spec.provider, spec.path)
    elif spec.value is not None:
        new = _stored(vault, row.name, version, spec.value, spec.description, to, tenant=row.tenant)
    elif row.provider is not None:
        raise invalid("/value", "the secret had a provider, so a value is needed", hint="send value, or provider")
    else:
        version = row.version
        new = NewSecret(spec.description, to, key_id=row.key_id, envelope=row.envelope)
    await secrets.update_secret(
        connection, tenant=row.tenant, name=row.name, seen=row.version, version=version, new=new, by=by
    )
    before = {field: getattr(shown(row), field) for field in AUDITED}
    after = before | {field: getattr(spec, field) for field in AUDITED}
    fields = changes(before, after)
    await audit.record(
        connection, "secret.edit", row.name, tenant=row.tenant, by=by, name=row.name, version=version, changes=fields
    )


def _stored(
    vault: Vault, name: str, version: int, value: str, description: str, to: Destinations, *, tenant: int
) -> NewSecret:
    sealed = vault.seal(value, secret_bound(tenant, name, version))
    return NewSecret(description, to, key_id=sealed.key_id, envelope=sealed.envelope)


def _source_problems(vault: Vault, spec: wire.SecretSpec) -> list[Problem]:
    if spec.value is not None and spec.provider is not None:
        return [Problem("/provider", "a secret has a value or a provider, not both", "leave one of them out")]
    if (spec.provider is None) != (spec.path is None):
        return [Problem("/path", "provider and path go together", "give both or neither")]
    if spec.provider is not None and spec.provider not in vault.provider_names:
        known = ", ".join(vault.provider_names) or "none; configure one"
        return [Problem("/provider", f"this server has no provider {spec.provider!r}", f"known: {known}")]
    return [] if spec.value is None else value_problems(spec.value)


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise Invalid(problems[0].message, problems=tuple(problems))
