"""Chains audit entries, signs the heads of the chains, and sends them to channels. Duties of the leading scheduler."""

from __future__ import annotations

import hashlib
from uuid import UUID

from mainspring.domain.audit_chain import CLUSTER, content, hash_of
from mainspring.store import audit_chain, outbox
from mainspring.store.audit_chain import NewLink, SignedHead
from mainspring.store.db import Database
from mainspring.vault import audit_signature
from mainspring.vault.vault import Vault

BATCH = 500
MOST_SIGNED = 1_000
"""Chains that one round signs; the next one signs the rest."""
HEADS_KEPT = 1_000
"""Signed heads kept of each chain: the newest ones."""
SEND_EVERY_S = 3600.0
"""How often the head of a chain that has grown is sent to channels."""
FIRST_TENANT = 1
EVENT = "audit.head"


async def chain_pending(database: Database) -> int:
    """Chain every committed entry; return how many."""
    async with database.connection() as connection:
        tenants = await audit_chain.pending_chains(connection)
    chained = 0
    for tenant in tenants:
        while (count := await _chain_batch(database, tenant)) > 0:
            chained += count
    return chained


async def _chain_batch(database: Database, tenant: int) -> int:
    async with database.transaction() as connection:
        # The lock comes first: what is pending is read after another process that chains has committed.
        last, hashed = await audit_chain.lock_chain(connection, tenant=tenant)
        entries = await audit_chain.pending_entries(connection, tenant=tenant, limit=BATCH)
        links = []
        for seq, entry in enumerate(entries, start=last + 1):
            previous, hashed = hashed, hash_of(content(entry, tenant=tenant, seq=seq, previous=hashed))
            links.append(NewLink(entry["audit_id"], previous, hashed))
        if links and not await audit_chain.extend_chain(connection, tenant=tenant, after=last, links=links):
            raise RuntimeError(f"audit chain {tenant} grew while it was locked")
        return len(links)


async def sign_heads(database: Database, vault: Vault) -> int:
    """Sign the last entry of each chain that has grown, or whose head has an older master key; return how many.

    Without a master key there is nothing to sign with.
    """
    if not vault.has_key:
        return 0
    async with database.connection() as connection:
        found = await audit_chain.unsigned_chains(connection, key_id=vault.keyring.current, limit=MOST_SIGNED)
        for tenant, seq, hashed in found:
            key_id, signature = audit_signature.sign(vault.keyring, tenant=tenant, seq=seq, hashed=hashed)
            await audit_chain.insert_head(
                connection, tenant=tenant, seq=seq, hashed=hashed, key_id=key_id, signature=signature, kept=HEADS_KEPT
            )
    return len(found)


async def send_heads(database: Database, vault: Vault, *, every_s: float = SEND_EVERY_S) -> int:
    """Write the heads of chains to the outbox, for channels that subscribe to them; return how many."""
    if not vault.has_key:
        return 0
    async with database.connection() as connection:
        heads = await audit_chain.heads_to_send(connection, every_s=every_s)
    sent = 0
    for head in heads:
        async with database.transaction() as connection:
            if not await audit_chain.head_sent(connection, head):
                continue
            sent += await outbox.notify_alert(
                connection,
                tenant=FIRST_TENANT if head.tenant == CLUSTER else head.tenant,
                event_id=_event_id(head),
                event=EVENT,
                stream=f"audit {head.tenant}",
                body=_message(head, vault),
                channels=[],
                job=None,
                received=None,
            )
    return sent


def _message(head: SignedHead, vault: Vault) -> dict[str, object]:
    return {
        "tenant": head.tenant,
        "seq": head.seq,
        "hash": head.hash.hex(),
        "signed_at": head.signed_at.isoformat(),
        "key_id": head.key_id,
        "signature": head.signature.hex(),
        "public_key": audit_signature.public_key(vault.keyring, head.key_id).hex(),
    }


def _event_id(head: SignedHead) -> UUID:
    return UUID(bytes=hashlib.sha256(f"{head.tenant} {head.seq} {head.key_id}".encode()).digest()[:16])
