"""Verify and export the hash chains of the audit log, in pages: memory does not grow with the log."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from mainspring import wire
from mainspring.domain.audit_chain import GENESIS, ChainCheck, ChainProblem, canonical, content
from mainspring.domain.errors import invalid
from mainspring.store import audit_chain
from mainspring.store.audit_chain import SignedHead
from mainspring.store.db import Connection, Database
from mainspring.vault import audit_signature
from mainspring.vault.vault import Vault
from mainspring.views.refs import bad_cursor

PAGE = 500
MAX_PER_CALL = 20_000
"""Entries that one call verifies; the next one continues at its cursor."""
_CURSOR = re.compile(r"(entry|log):(\d{1,18})", re.ASCII)
_HEAD = re.compile(r"(\d{1,18}):([0-9a-f]{64})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Signatures:
    """The signed heads of a chain: those that are valid, by entry, and what is wrong with the others."""

    valid: dict[int, SignedHead]
    forged: ChainProblem | None
    unknown_keys: list[str]


async def verify(
    database: Database,
    vault: Vault,
    *,
    tenant: int,
    cursor: str | None = None,
    witnessed: str | None = None,
    most: int = MAX_PER_CALL,
) -> wire.AuditVerification:
    """Verify a part of the chain of a tenant, or of the cluster; `next_cursor` continues.

    `witnessed`: an entry and its hash as an outside witness has them, such as `17:<hash>`.
    """
    phase, position = _position(cursor)
    async with database.connection() as connection:
        signatures = await _signatures(connection, vault, tenant)
        signed = {seq: head.hash for seq, head in signatures.valid.items()} | _witnessed(witnessed)
        problem, following = None, None
        checked = 0
        if phase == "entry":
            problem, checked, following = await _verify_entries(connection, tenant, position, signed, most)
            if problem is None and following is None:
                problem = await _end_problem(connection, tenant, signed) or signatures.forged
                following = "log:0"
        else:
            problem, following = await _verify_log(connection, tenant, position, most)
        last, hashed = await audit_chain.chain_head(connection, tenant=tenant)
        unchained, _ = await audit_chain.pending_facts(connection, tenant=tenant)
    newest = max(signatures.valid.values(), key=lambda head: head.seq, default=None)
    return wire.AuditVerification(
        intact=problem is None,
        verified=checked,
        entries=last,
        hash=hashed.hex(),
        unchained=unchained,
        signed_entries=0 if newest is None else newest.seq,
        signed_at=None if newest is None else newest.signed_at,
        problem=None if problem is None else _shown(problem),
        notes=_notes(vault, signatures),
        next_cursor=None if problem is not None else following,
    )


async def verify_newest(database: Database, vault: Vault, *, tenant: int, most: int) -> wire.AuditProblem | None:
    """Verify the newest entries of a chain only; return what is wrong."""
    async with database.connection() as connection:
        last, _ = await audit_chain.chain_head(connection, tenant=tenant)
        signatures = await _signatures(connection, vault, tenant)
        signed = {seq: head.hash for seq, head in signatures.valid.items()}
        problem, _, _ = await _verify_entries(connection, tenant, max(0, last - most), signed, most)
        problem = problem or await _end_problem(connection, tenant, signed) or signatures.forged
    return None if problem is None else _shown(problem)


async def export(database: Database, vault: Vault, *, tenant: int, after: int = 0) -> AsyncIterator[bytes]:
    """The chained entries behind `after` as JSON lines, oldest first, each with its hash; then the signed heads."""
    while True:
        async with database.connection() as connection:
            page = await audit_chain.chain_page(connection, tenant=tenant, after=after, limit=PAGE)
        lines = []
        for link in page:
            fields: dict[str, Any] = {"seq": link.seq, "previous": link.previous.hex(), "removed": True}
            if link.entry is not None:
                fields = content(link.entry, tenant=tenant, seq=link.seq, previous=link.previous)
            lines.append(canonical(fields | {"hash": link.hash.hex()}))
        if lines:
            yield "".join(f"{line}\n" for line in lines).encode()
        if len(page) < PAGE:
            break
        after = page[-1].seq
    async with database.connection() as connection:
        heads = await audit_chain.list_heads(connection, tenant=tenant)
    for head in heads:
        yield (canonical({"head": _exported(head, vault)}) + "\n").encode()


def _exported(head: SignedHead, vault: Vault) -> dict[str, Any]:
    known = vault.has_key and head.key_id in vault.keyring.ids
    return {
        "tenant": head.tenant,
        "seq": head.seq,
        "hash": head.hash.hex(),
        "signed_at": head.signed_at.isoformat(),
        "key_id": head.key_id,
        "signature": head.signature.hex(),
        "public_key": audit_signature.public_key(vault.keyring, head.key_id).hex() if known else None,
    }


async def _signatures(connection: Connection, vault: Vault, tenant: int) -> Signatures:
    valid: dict[int, SignedHead] = {}
    unknown: set[str] = set()
    forged = None
    keys = vault.keyring.ids if vault.has_key else []
    for head in await audit_chain.list_heads(connection, tenant=tenant):
        if head.key_id not in keys:
            unknown.add(head.key_id)
        elif audit_signature.is_signed(
            vault.keyring, head.key_id, head.signature, tenant=tenant, seq=head.seq, hashed=head.hash
        ):
            valid[head.seq] = head
        elif forged is None:
            what = f"the signature of the head at entry {head.seq} is not valid: it was not signed by this server"
            forged = ChainProblem("forged_head", head.seq, what)
    return Signatures(valid, forged, sorted(unknown))


async def _verify_entries(
    connection: Connection, tenant: int, after: int, signed: dict[int, bytes], most: int
) -> tuple[ChainProblem | None, int, str | None]:
    """Verify entries behind one; return what is wrong, how many were verified, and where to continue."""
    begin = GENESIS if after == 0 else await audit_chain.chain_hash(connection, tenant=tenant, seq=after)
    if begin is None:
        return ChainProblem("removed", after, f"entry {after} of the chain no longer exists"), 0, None
    check = ChainCheck(tenant, seq=after, last=begin, signed=signed)
    checked = 0
    while checked < most:
        page = await audit_chain.chain_page(connection, tenant=tenant, after=check.seq, limit=min(PAGE, most - checked))
        for link in page:
            if (problem := check.problem(link)) is not None:
                return problem, checked, None
            checked += 1
        if len(page) < PAGE and checked < most:
            return None, checked, None
    return None, checked, f"entry:{check.seq}"


async def _end_problem(connection: Connection, tenant: int, signed: dict[int, bytes]) -> ChainProblem | None:
    """What is wrong behind the last entry of a chain that is in order so far."""
    last, hashed = await audit_chain.chain_head(connection, tenant=tenant)
    at = max([last, *signed])
    found = GENESIS if at == 0 else await audit_chain.chain_hash(connection, tenant=tenant, seq=at)
    if found is None:
        return ChainProblem("truncated", at, f"the chain once had entry {at}; entries at its end were removed")
    if at > last or found != hashed:
        return ChainProblem("rewritten", at, f"entry {at} is not the one that was chained last")
    behind = await audit_chain.chain_page(connection, tenant=tenant, after=at, limit=1)
    if behind and await audit_chain.chain_head(connection, tenant=tenant) == (last, hashed):
        return ChainProblem("inserted", behind[0].seq, f"entry {behind[0].seq} was not added by this server")
    _, removed = await audit_chain.pending_facts(connection, tenant=tenant)
    if removed is not None:
        return ChainProblem("removed", last + 1, f"audit entry {removed} was removed before it was chained", removed)
    return None


async def _verify_log(
    connection: Connection, tenant: int, after: int, most: int
) -> tuple[ChainProblem | None, str | None]:
    """Find entries that are in no chain: inserted without the trigger that lets them be chained, or from elsewhere."""
    last, stray = await audit_chain.stray_entries(connection, tenant=tenant, after=after, limit=most)
    if stray is not None:
        what = f"audit entry {stray} is not part of the chain: it was inserted, or moved here from another tenant"
        return ChainProblem("inserted", 0, what, stray), None
    return None, None if last is None else f"log:{last}"


def _position(cursor: str | None) -> tuple[str, int]:
    if cursor is None:
        return "entry", 0
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise bad_cursor()
    return found[1], int(found[2])


def _witnessed(text: str | None) -> dict[int, bytes]:
    if text is None:
        return {}
    found = _HEAD.fullmatch(text)
    if found is None:
        raise invalid("/head", f"{text[:100]!r} is not a head", hint="the number of an entry, a colon, and its hash")
    return {int(found[1]): bytes.fromhex(found[2])}


def _notes(vault: Vault, signatures: Signatures) -> list[str]:
    if not vault.has_key:
        return ["this server has no master key, so the heads of the chain are not signed"]
    return [
        f"heads were signed with the master key {key_id!r}, which this server does not have: they were not verified"
        for key_id in signatures.unknown_keys
    ]


def _shown(problem: ChainProblem) -> wire.AuditProblem:
    return wire.AuditProblem(kind=problem.kind, seq=problem.seq, what=problem.what, audit_id=problem.audit_id)
