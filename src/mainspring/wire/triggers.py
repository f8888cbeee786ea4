"""Triggers, their deliveries, and the response to a webhook."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec

from mainspring.domain.bounds import Duration, Labels, Name
from mainspring.domain.trigger import MAX_SECRET_CHARS, DeliveryOutcome, TriggerSpec
from mainspring.wire.message import Request, Response

Secret = Annotated[str, msgspec.Meta(max_length=MAX_SECRET_CHARS)]


class NamedTrigger(TriggerSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trigger with its name, as manifests have it."""

    name: Name

    @property
    def spec(self) -> TriggerSpec:
        return TriggerSpec(**{field: getattr(self, field) for field in TriggerSpec.__struct_fields__})


class NewTrigger(NamedTrigger, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new trigger. Without `secret`, a webhook gets a generated one; `secret://name` refers to a secret."""

    secret: Secret | None = None


class RotateTriggerSecret(Request):
    """A new signing secret; generated if it is left out. The previous one stays valid for `overlap`."""

    secret: Secret | None = None
    overlap: Duration = "24h"


class TriggerPause(Request):
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class TriggerDelivery(Response):
    """Something that reached a trigger, and what it led to. `key` is the same for equal deliveries.

    `repeats` counts how often it came again; a delivery that has started an execution starts no other.
    """

    delivery_id: int
    key: str
    event: str | None
    outcome: DeliveryOutcome
    reason: str | None
    execution_id: UUID | None
    params: dict[str, Any] | None
    repeats: int
    received_at: datetime


class Trigger(Response):
    """A trigger. `path` is the address of a webhook on this server.

    `secret` is present only in the response that generated it. `secret_reference` is the `secret://name` that the
    trigger refers to. `previous_secret_until`: until then, requests may be signed with the secret before it as well.
    `last_rejection`: why a request was rejected; recorded at most every ten seconds. Of a trigger that watches files:
    `looked_at` is the last look that could read the place; while one cannot, the state is `failing`, and `last_error`
    says why. A trigger that reads a topic has these fields, too; `lag` is the number of messages that wait.
    """

    trigger_id: UUID
    name: str
    kind: str
    job: str
    spec: TriggerSpec
    state: Literal["active", "paused", "failing"]
    path: str | None
    version: int
    created_at: datetime
    created_by: str
    updated_at: datetime
    paused_at: datetime | None = None
    pause_reason: str | None = None
    previous_secret_until: datetime | None = None
    secret_reference: str | None = None
    last_delivery: TriggerDelivery | None = None
    last_rejected_at: datetime | None = None
    last_rejection: str | None = None
    looked_at: datetime | None = None
    next_look_at: datetime | None = None
    last_error: str | None = None
    last_error_at: datetime | None = None
    lag: int | None = None
    secret: str | None = None


class TriggerAnswer(Response):
    """What a delivery led to: the execution that it started, or the reason why it started none.

    `duplicate`: the execution was started by an earlier delivery with the same id.
    """

    trigger: str
    delivery: str
    outcome: DeliveryOutcome
    execution_id: UUID | None = None
    reason: str | None = None
    duplicate: bool = False


class TriggerSample(Request):
    """A sample for a dry run: the body and headers of a webhook or a message, an ended execution, or a file.

    For a completion, `body` is the sample of `execution`, if `execution_id` names none; for files, that of `file`.
    """

    body: Any = None
    headers: Labels = {}
    event: Name | None = None
    execution_id: UUID | None = None


class TriggerTest(Response):
    """What a sample would lead to: the params of the execution, or the reason why nothing would start."""

    outcome: DeliveryOutcome
    job: str
    params: dict[str, Any] | None = None
    reason: str | None = None
