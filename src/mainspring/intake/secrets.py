"""Create, replace and delete secrets."""

from __future__ import annotations

from mainspring import wire
from mainspring.domain.audit import changes
from mainspring.domain.errors import Conflict, Invalid, Problem, invalid
from mainspring.domain.secret import Destinations, destination_problems, name_problems, value_problems
from mainspring.store import audit, secrets, tenants
from mainspring.store.db import Connection, Database, Taken
from mainspring.store.secrets import NewSecret, SecretRow
from mainspring.vault.vault import Vault, secret_bound
from mainspring.views import secrets as secret_views
from mainspring.views.secrets import shown, unknown

AUDITED = ("description", "jobs", "queues", "hosts", "channels", "triggers", "provider", "path")


async def put(
    database: Database, vault: Vault, name: str, spec: wire.SecretSpec, *, tenant: int, by: str
) -> wire.Secret:
    """Create a secret, or replace it. Without a value, the stored one stays."""
    to = Destinations(spec.jobs, spec.queues, spec.hosts, spec.channels, spec.triggers)
    _refuse([*name_problems(name), *destination_problems(to), *_source_problems(vault, spec)])
    try:
        async with database.transaction() as connection:
            await _check_path(connection, vault, spec, tenant=tenant)
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


async def _check_path(connection: Connection, vault: Vault, spec: wire.SecretSpec, *, tenant: int) -> None:
    """Refuse a path that the server does not allow to this tenant."""
    if spec.provider is None or spec.path is None:
        return
    name = await tenants.tenant_name(connection, tenant=tenant)
    if (refused := vault.path_refusal(spec.provider, spec.path, tenant=name)) is not None:
        raise invalid("/path", refused, hint="the operator allows paths in the provider file", code="path_refused")


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
