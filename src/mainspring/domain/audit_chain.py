"""The hash chain of audit entries: content, hashes, and the verdict on an entry. Pure.

The hash of an entry is the SHA-256 of its canonical content, which contains the hash of its predecessor. So a change,
removal, insertion or exchange of entries breaks the chain at that place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

CLUSTER = 0
"""Stands for a tenant in entries that belong to none."""
GENESIS = bytes(32)
"""What the first entry of a chain has in place of the hash of a predecessor."""
FORMAT = 1
FIELDS = (
    "audit_id", "actor", "action", "subject", "name", "reason", "details", "request_id", "source",
)  # fmt: skip
IDS = ("actor_id", "principal_id")

Kind = Literal[
    "changed", "removed", "inserted", "reordered", "truncated", "rewritten", "wrong_tenant", "forged_head"
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Link:
    """An entry of a chain as it is stored. `entry`: the columns of the audit entry; None: there is none."""

    seq: int
    audit_id: int
    previous: bytes
    hash: bytes
    entry: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class ChainProblem:
    """The first entry of a chain that is not as it was written, and why."""

    kind: Kind
    seq: int
    what: str
    audit_id: int | None = None


def content(entry: Mapping[str, Any], *, tenant: int, seq: int, previous: bytes) -> dict[str, Any]:
    """The content that the hash of an entry covers, as JSON values."""
    at: datetime = entry["at"]
    return {
        "format": FORMAT,
        "tenant": tenant,
        "seq": seq,
        "previous": previous.hex(),
        "at": at.astimezone(UTC).isoformat(timespec="microseconds"),
        **{name: entry[name] for name in FIELDS},
        **{name: None if entry[name] is None else str(entry[name]) for name in IDS},
    }


def canonical(value: Mapping[str, Any]) -> str:
    """JSON with sorted keys, without spaces, and with characters as they are."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def hash_of(value: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(canonical(value).encode()).digest()


class ChainCheck:
    """Checks the links of a chain one after the other, in the order of their numbers."""

    def __init__(self, tenant: int, *, seq: int = 0, last: bytes = GENESIS, signed: Mapping[int, bytes]) -> None:
        """Begin behind the entry `seq` with the hash `last`. `signed`: the hashes of valid signed heads."""
        self._tenant = tenant
        self._signed = signed
        self.seq, self.last, self._before = seq, last, GENESIS

    def problem(self, link: Link) -> ChainProblem | None:
        """Return what is wrong with the next link; None: it continues the chain."""
        expected = self.seq + 1
        if link.seq != expected:
            gone = f"entry {expected}" if link.seq == expected + 1 else f"entries {expected} to {link.seq - 1}"
            return ChainProblem("removed", expected, f"{gone} of the chain no longer exist")
        found = self._content_problem(link) or self._signature_problem(link)
        self.seq, self._before, self.last = link.seq, self.last, link.hash
        return found

    def _content_problem(self, link: Link) -> ChainProblem | None:
        seq, entry = link.seq, link.entry
        if entry is None:
            return ChainProblem("removed", seq, f"audit entry {link.audit_id} no longer exists", link.audit_id)
        if entry["tenant_id"] != self._tenant:
            what = f"audit entry {link.audit_id} was moved to another tenant"
            return ChainProblem("wrong_tenant", seq, what, link.audit_id)
        fits = hash_of(content(entry, tenant=self._tenant, seq=seq, previous=link.previous)) == link.hash
        if link.previous == self.last:
            what = f"audit entry {link.audit_id} does not have the content that was chained"
            return None if fits else ChainProblem("changed", seq, what, link.audit_id)
        if link.previous == self._before and seq > 1:
            return ChainProblem("inserted", seq - 1, f"entry {seq - 1} was inserted: entry {seq} follows another one")
        return ChainProblem("reordered", seq, f"entry {seq} does not follow entry {seq - 1}", link.audit_id)

    def _signature_problem(self, link: Link) -> ChainProblem | None:
        if self._signed.get(link.seq, link.hash) == link.hash:
            return None
        what = f"entry {link.seq} has another hash than the signed head: it, or an entry before it, was rewritten"
        return ChainProblem("rewritten", link.seq, what, link.audit_id)
