"""Manifests: what to apply, and the plan of changes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from mainspring.domain.bounds import Name, Values
from mainspring.wire.message import Request, Response

MAX_MANIFESTS = 10_000
"""Of one request."""
MAX_KEPT = 100_000

ManifestAction = Literal["create", "change", "delete", "none"]


class ApplyManifests(Request):
    """Manifests to apply, all or none, on behalf of an `owner`.

    With `prune`, objects that the same owner applied before are deleted, if they are neither in `manifests` nor in
    `keep` (`Kind/name`). `take_over` also changes objects of other owners. `plan` is the digest of a plan that was
    reviewed: if the plan differs by now, nothing is written.
    """

    manifests: Annotated[list[Values], msgspec.Meta(max_length=MAX_MANIFESTS)] = []
    owner: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] = "default"
    prune: bool = False
    keep: Annotated[list[Name], msgspec.Meta(max_length=MAX_KEPT)] = []
    take_over: bool = False
    plan: Annotated[str, msgspec.Meta(max_length=64)] | None = None


class FieldChange(Response):
    """A field that applying changes. Long values are shortened; secrets are masked."""

    path: str
    old: Any = None
    new: Any = None


class FieldDrift(Response):
    """A field that was changed on the server since the manifest was last applied.

    `kept`: the manifest does not set it, so it stays; otherwise the manifest overwrites it.
    """

    path: str
    applied: Any = None
    live: Any = None
    kept: bool = False


class ManifestChange(Response):
    """What applying one manifest does. `secret` is present only in the response that generated it."""

    kind: str
    name: str
    action: ManifestAction
    fields: list[FieldChange] = []
    drift: list[FieldDrift] = []
    fires_before: list[datetime] = []
    fires_after: list[datetime] = []
    note: str = ""
    secret: str | None = None


class ManifestPlan(Response):
    """The changes, in the order of writing. Objects without a change and without drift are only counted.

    `more`: so many objects were not pruned, because one request deletes a limited number; repeat it.
    """

    owner: str
    changes: list[ManifestChange]
    created: int
    changed: int
    deleted: int
    unchanged: int
    digest: str
    applied: bool
    more: int = 0


class ManifestDocument(Response):
    """One object as a manifest, without secrets."""

    kind: str
    metadata: dict[str, Any]
    spec: dict[str, Any]
