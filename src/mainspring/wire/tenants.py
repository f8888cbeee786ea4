"""Tenants, their quotas and their shares."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from mainspring.wire.identity import Role, Token, User
from mainspring.wire.manifests import ManifestDocument
from mainspring.wire.message import Request, Response

Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
Cap = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000_000_000)]
Weight = Annotated[float, msgspec.Meta(gt=0, le=1_000_000)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=10_000_000)]
Kept = Annotated[float, msgspec.Meta(ge=86_400, le=1_000_000_000)]


class TenantSettings(Request):
    """Fair-share weight, cap and quotas. A missing field stays as it is; null: unlimited."""

    weight: Weight | UnsetType = UNSET
    """Share of shared workers, relative to other tenants."""
    cap: Cap | UnsetType | None = UNSET
    """Most executions running at once."""
    max_jobs: Count | UnsetType | None = UNSET
    max_queued: Count | UnsetType | None = UNSET
    """Most executions that have not started; submissions beyond it are refused."""
    schedules_per_hour: Count | UnsetType | None = UNSET
    """Schedules that each user, or token without one, may create per hour."""
    min_interval_s: Seconds | UnsetType | None = UNSET
    """Shortest interval between fires of a schedule."""
    end_required: bool | UnsetType = UNSET
    """Whether every schedule needs an `end_at`."""
    output_per_day: Bytes | UnsetType | None = UNSET
    """Bytes of output that are stored per day (UTC); output beyond it is cut, and executions go on."""
    keep_history_s: Kept | UnsetType | None = UNSET
    """How long finished executions are kept, by whole days, if the server keeps them longer."""


class NewTenant(TenantSettings, kw_only=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=63)]


class SuspendTenant(Request):
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class TenantShare(Response):
    """`entitled` and `used` are fractions of all tenants that run or wait for something."""

    entitled: float
    used: float
    running: int
    waiting: int


class Tenant(Response):
    name: str
    created_at: datetime
    suspended_at: datetime | None
    suspend_reason: str | None
    weight: float
    cap: int | None
    max_jobs: int | None
    max_queued: int | None
    schedules_per_hour: int | None
    min_interval_s: float | None
    end_required: bool
    output_per_day: int | None
    keep_history_s: float | None
    output_today: int
    """Bytes of output that were stored today (UTC), to within a few seconds."""
    share: TenantShare


class TenantExport(Response):
    """Everything that defines a tenant. Apply `manifests` to restore its definitions."""

    tenant: Tenant
    manifests: list[ManifestDocument]
    users: list[User]
    roles: list[Role]
    tokens: list[Token]
