"""Alert rules, alerts, silences, notification channels and deliveries."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec

from mainspring.domain.alert import AlertState, Rule, Severity
from mainspring.domain.bounds import Duration, Name
from mainspring.domain.channel import Target
from mainspring.domain.schedule.schedule import ScheduleSpecs
from mainspring.wire.message import Instant, Request, Response


class Alert(Response):
    """A violation of an alert rule. `told_at` is null while a silence holds the notification back."""

    alert_id: UUID
    rule: str
    key: str
    severity: Severity
    state: AlertState
    value: float
    threshold: float
    summary: str
    since_at: datetime
    fired_at: datetime | None
    told_at: datetime | None
    resolved_at: datetime | None


class AlertRule(Response):
    """An alert rule. Deleting the override of a `built_in` rule restores its default."""

    name: str
    rule: Rule
    means: str
    built_in: bool
    changed: bool
    updated_at: datetime | None = None
    updated_by: str | None = None


class NewSilence(Request):
    """Mutes notifications that match: until `end_at`, from `start_at` on, or on a schedule."""

    matchers: Annotated[dict[Name, Name], msgspec.Meta(max_length=20)]
    start_at: Instant | None = None
    end_at: Instant | None = None
    schedule: ScheduleSpecs | None = None
    lasts: Duration | None = None
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class Silence(Response):
    silence_id: UUID
    matchers: dict[str, str]
    start_at: datetime | None
    end_at: datetime | None
    schedule: ScheduleSpecs | None
    lasts_s: float | None
    description: str
    reason: str
    holds_until: datetime | None
    created_at: datetime
    created_by: str


class ChannelSpec(Request):
    """A notification target. `events` are those it subscribes to; `jobs` limits execution events (`etl-*`)."""

    target: Target
    events: Annotated[list[Name], msgspec.Meta(max_length=50)] = []
    jobs: Annotated[list[Name], msgspec.Meta(max_length=100)] = []


class NewChannel(ChannelSpec, kw_only=True):
    name: Name


class Channel(Response):
    """A channel. `target` omits secrets, except references to them; `secrets` names those that are set.

    `secret` is present only in the response that generated a webhook's signing secret.
    """

    name: str
    kind: str
    target: dict[str, Any]
    secrets: list[str]
    events: list[str]
    jobs: list[str]
    state: Literal["ok", "failing", "disabled"]
    pending: int
    created_at: datetime
    created_by: str
    failing_since: datetime | None = None
    last_error: str | None = None
    disabled_at: datetime | None = None
    secret: str | None = None


class ChannelTest(Response):
    """The response to a test message; `error` says why it does not count as delivered."""

    delivered: bool
    status: int | None
    excerpt: str | None
    duration_ms: int
    error: str | None


class Delivery(Response):
    """One event for one channel, and the result of the latest try. `event_id` is the same for every try."""

    delivery_id: int
    event_id: UUID
    channel: str
    event: str
    state: Literal["pending", "sent", "dropped"]
    tries: int
    created_at: datetime
    tried_at: datetime | None
    next_at: datetime | None
    status: int | None
    excerpt: str | None
    error: str | None
    duration_ms: int | None
    data: dict[str, Any]
