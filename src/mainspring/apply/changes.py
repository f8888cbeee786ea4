"""What a plan consists of: changes of objects, deletions, and who asked for them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from mainspring import wire
from mainspring.apply.adapter import Live
from mainspring.apply.kinds import ADAPTERS
from mainspring.intake.dependency_changes import NeedsChange
from mainspring.manifest import JobManifest, Manifest, Need, without_defaults
from mainspring.store.manifests import Key
from mainspring.vault.vault import Vault


@dataclass(frozen=True, slots=True)
class Requester:
    """The caller, and what its token allows."""

    tenant: int
    by: str
    scopes: frozenset[str] | None = None  # None: nothing is written
    may_exceed: bool = False
    may_share: bool = False
    vault: Vault = field(default_factory=Vault)


@dataclass(frozen=True, slots=True)
class Change:
    """One manifest and what becomes of its object. `record`: what was applied must be recorded.

    `versioned`: more than the dependencies of a job changes, so it gets a new version.
    """

    number: int
    manifest: Manifest
    digest: bytes
    live: Live | None
    definition: Any
    shown: wire.ManifestChange
    record: bool = True
    versioned: bool = True

    @property
    def key(self) -> Key:
        return self.manifest.key

    @property
    def writes(self) -> bool:
        return self.shown.action in ("create", "change")

    @property
    def needs(self) -> NeedsChange | None:
        """How the dependencies of a job change; None if they do not."""
        if self.manifest.kind != "Job" or not self.writes:
            return None
        before = {} if self.live is None else self.live.values.get("needs", {})
        return needs_change(self.manifest.name, before, self.definition) if before or self.definition.needs else None


@dataclass(frozen=True, slots=True)
class Deletion:
    key: Key
    live: Live
    last: dict[str, Any]
    fires: list[datetime] = field(default_factory=list)


@dataclass(slots=True)
class Plan:
    """All changes, in the order of the kinds; `gone` are applied objects that no longer exist."""

    changes: list[Change] = field(default_factory=list)
    deletions: list[Deletion] = field(default_factory=list)
    gone: list[Key] = field(default_factory=list)
    unchanged: int = 0
    more: int = 0

    @property
    def digest(self) -> str:
        """Equal for equal plans: of the same manifests, for objects in the same state."""
        rows = [
            (
                *c.key,
                c.shown.action,
                c.digest.hex(),
                None if c.live is None else (str(c.live.object_id), c.live.version),
                sorted(c.live.values.get("needs", ())) if c.live is not None and c.manifest.kind == "Job" else [],
            )
            for c in self.changes
            if c.shown.action != "none"
        ]
        gone = [(*d.key, str(d.live.object_id), d.live.version) for d in self.deletions]
        return hashlib.sha256(msgspec.json.encode([rows, gone])).hexdigest()[:16]

    def response(self, owner: str, *, applied: bool, secrets: dict[Key, str | None] | None = None) -> wire.ManifestPlan:
        listed = [
            msgspec.structs.replace(c.shown, secret=(secrets or {}).get(c.key))
            for c in self.changes
            if c.shown.action != "none" or c.shown.drift or c.shown.note
        ]
        listed += [
            wire.ManifestChange(kind=d.key[0], name=d.key[1], action="delete", fires_before=d.fires)
            for d in self.deletions
        ]
        actions = [change.action for change in listed]
        return wire.ManifestPlan(
            owner=owner,
            changes=listed,
            created=actions.count("create"),
            changed=actions.count("change"),
            deleted=actions.count("delete"),
            unchanged=self.unchanged + sum(c.shown.action == "none" for c in self.changes),
            digest=self.digest,
            applied=applied,
            more=self.more,
        )


def needs_change(name: str, live: Mapping[str, Any], definition: JobManifest) -> NeedsChange | None:
    """Compare the dependencies of a job on the server with those of its definition."""
    before = _needs(live)
    after = _needs(without_defaults(definition.needs))
    return None if before == after else NeedsChange(name, before, after)


def _needs(values: Mapping[str, Any]) -> dict[str, Need]:
    comparable = ADAPTERS["Job"].comparable({"needs": values})["needs"]
    return {name: Need(**need) for name, need in comparable.items()}
