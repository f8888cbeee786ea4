"""Master keys: encrypt what is in plain text, and wrap every value in the current key. Over all tenants."""

from __future__ import annotations

import structlog

from mainspring import wire
from mainspring.store import audit, secret_fields, secrets
from mainspring.store.db import Connection, Database
from mainspring.store.secret_fields import Holder, Holders, SecretFields
from mainspring.store.secrets import SealedRow
from mainspring.vault.keyring import KeyMissing, Keyring, Sealed, Tampered
from mainspring.vault.vault import Vault, holder_bound, secret_bound

log = structlog.get_logger()

BATCH = 200
HOLDERS: tuple[Holders, ...] = ("channels", "triggers")


async def keys(database: Database, vault: Vault) -> wire.SecretKeys:
    """The master keys, and how many values each protects."""
    async with database.connection() as connection:
        used = await secrets.count_by_key(connection)
        plain = await secret_fields.count_plain(connection, tenant=None)
    known = {key_id: used.pop(key_id, 0) for key_id in vault.keyring.ids}
    return wire.SecretKeys(current=vault.keyring.current, keys=known | used, plain=plain)


async def encrypt(database: Database, vault: Vault) -> int:
    """Encrypt the secrets of channels and triggers that are in plain text; return how many rows had some.

    A batch at a time, repeatable after an interruption. Rows that another transaction has locked are left: it is
    another server that encrypts them, or an edit, which encrypts as well.
    """
    count = 0
    for of in HOLDERS:
        while sealed := await _encrypt_batch(database, vault, of):
            count += sealed
    return count


async def encrypt_now(database: Database, vault: Vault, *, tenant: int, by: str) -> wire.SecretKeys:
    """Encrypt on request, and record it."""
    count = await encrypt(database, vault)
    async with database.transaction() as connection:
        current = vault.keyring.current
        await audit.record(connection, "secret.encrypt", current, tenant=tenant, by=by, name=current, values=count)
    found = await keys(database, vault)
    return wire.SecretKeys(current=found.current, keys=found.keys, plain=found.plain, encrypted=count)


async def rotate(database: Database, vault: Vault, *, tenant: int, by: str) -> wire.SecretKeys:
    """Wrap every value in the current master key, a batch at a time; repeatable after an interruption."""
    vault.keyring.reload()
    encrypted = await encrypt(database, vault)
    count = 0
    while wrapped := await _rewrap_batch(database, vault.keyring):
        count += wrapped
    for of in HOLDERS:
        while wrapped := await _rewrap_fields(database, vault.keyring, of):
            count += wrapped
    async with database.transaction() as connection:
        current = vault.keyring.current
        await audit.record(connection, "secret.rotate_key", current, tenant=tenant, by=by, name=current, values=count)
    found = await keys(database, vault)
    return wire.SecretKeys(
        current=found.current, keys=found.keys, plain=found.plain, rewrapped=count, encrypted=encrypted
    )


async def _encrypt_batch(database: Database, vault: Vault, of: Holders) -> int:
    async with database.transaction() as connection:
        rows = await secret_fields.plain_holders(connection, of=of, limit=BATCH)
        return await _write(connection, of, rows, [_sealed(vault, of, row) for row in rows])


def _sealed(vault: Vault, of: Holders, row: Holder) -> SecretFields:
    bound = holder_bound(of, row.holder_id, tenant=row.tenant, name=row.name)
    try:
        fields = vault.open_fields(row.fields, bound)
    except (Tampered, KeyMissing):  # an older server has replaced the secrets, and left the envelope of those before
        fields = row.fields.plain
    return vault.seal_fields(fields, bound)


async def _rewrap_batch(database: Database, keyring: Keyring) -> int:
    async with database.transaction() as connection:
        rows = await secrets.secrets_under_other_keys(connection, key_id=keyring.current, limit=BATCH)
        if rows:
            envelopes = [_rewrapped(keyring, row) for row in rows]
            await secrets.rewrap_secrets(connection, key_id=keyring.current, rows=rows, envelopes=envelopes)
        return len(rows)


def _rewrapped(keyring: Keyring, row: SealedRow) -> bytes:
    bound = secret_bound(row.tenant, row.name, row.version)
    return keyring.wrap_again(Sealed(row.key_id, row.envelope), bound).envelope


async def _rewrap_fields(database: Database, keyring: Keyring, of: Holders) -> int:
    async with database.transaction() as connection:
        rows = await secret_fields.holders_under_other_keys(connection, of=of, key_id=keyring.current, limit=BATCH)
        return await _write(connection, of, rows, [_rewrapped_fields(keyring, of, row) for row in rows])


def _rewrapped_fields(keyring: Keyring, of: Holders, row: Holder) -> SecretFields:
    assert row.fields.key_id is not None and row.fields.envelope is not None
    bound = holder_bound(of, row.holder_id, tenant=row.tenant, name=row.name)
    sealed = keyring.wrap_again(Sealed(row.fields.key_id, row.fields.envelope), bound)
    return SecretFields(row.fields.plain, sealed.key_id, sealed.envelope)


async def _write(connection: Connection, of: Holders, rows: list[Holder], fields: list[SecretFields]) -> int:
    return await secret_fields.write_fields(connection, of=of, rows=rows, fields=fields) if rows else 0
