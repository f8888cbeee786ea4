"""Receive webhooks: the signature authenticates a request; nothing of it is read before that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import structlog

from mainspring import wire
from mainspring.codec import decode
from mainspring.domain.channel import new_secret
from mainspring.domain.errors import Conflict, NotFound, Unauthenticated, Unavailable
from mainspring.domain.topic import TopicSource
from mainspring.domain.trigger import CompletionSource, WebhookSource
from mainspring.domain.watch import FilesSource
from mainspring.domain.webhook import BadSignature, SignatureHeaders, check_signature, delivery_of, visible
from mainspring.intake.triggers.completions import ended_sample
from mainspring.intake.triggers.decide import Arrival
from mainspring.intake.triggers.signing import active_secrets
from mainspring.intake.triggers.topics import topic_sample
from mainspring.store import triggers
from mainspring.store.db import Database
from mainspring.store.triggers import TriggerRow
from mainspring.telemetry import metrics
from mainspring.vault.vault import Vault
from mainspring.views.refs import is_id
from mainspring.views.triggers import named

log = structlog.get_logger()

MAX_HOOK_BODY = 256_000
NO_HOOK = "there is no webhook at this address"
_UNKNOWN_SECRET = new_secret()
"""Requests to unknown addresses take the same steps as those with a wrong signature."""

Headers = Sequence[tuple[str, str]]


async def authenticate(database: Database, vault: Vault, trigger_id: str, headers: Headers, body: bytes) -> TriggerRow:
    """Return the webhook at an address, if the request is signed with one of its secrets."""
    found = None
    async with database.connection() as connection:
        if is_id(trigger_id):
            found = await triggers.trigger_by_id(connection, trigger_id=UUID(trigger_id))
    trigger, now_s = found if found is not None else (None, 0.0)
    source = trigger.spec.source if trigger is not None else None
    if trigger is None or not isinstance(source, WebhookSource):
        _reject_unknown(headers, body)
        raise NotFound(NO_HOOK)
    active = await _active_secrets(database, vault, trigger, now_s)
    try:
        check_signature(source.scheme, active, dict(headers), body, names=source.names, now_s=now_s)
    except BadSignature as error:
        metrics.TRIGGER_DELIVERIES.labels("webhook", "rejected").inc()
        async with database.connection() as connection:
            await triggers.note_rejection(connection, trigger_id=trigger.trigger_id, reason=str(error))
        raise Unauthenticated(f"{error}; nothing was started", code="bad_signature") from None
    return trigger


async def _active_secrets(database: Database, vault: Vault, trigger: TriggerRow, now_s: float) -> list[str]:
    """Return the secrets of a trigger. The sender gets no reason: only its owners see why they are not available."""
    try:
        return await active_secrets(database, vault, trigger, now_s=now_s)
    except Conflict as error:
        log.warning("trigger.secret_unavailable", trigger=trigger.name, error=error.message)
        async with database.connection() as connection:
            await triggers.note_rejection(connection, trigger_id=trigger.trigger_id, reason=error.message)
        raise Unavailable("the signing secret of this webhook is not available; try again later") from None


def arrival_of(source: WebhookSource, headers: Headers, body: bytes) -> Arrival:
    """Decode an authenticated request. A body that is not JSON raises Invalid."""
    content: Any = decode(body, Any, limit=MAX_HOOK_BODY) if body.strip() else {}
    given = {name: value for name, value in headers if "\0" not in value}
    key, event = delivery_of(source.scheme, given, body, content, names=source.names, dedupe=source.dedupe)
    return Arrival(key, event, _values(source, headers, content, key, event))


async def sample_of(
    database: Database, name: str, sample: wire.TriggerSample, *, tenant: int
) -> tuple[TriggerRow, Arrival]:
    """A trigger, and a sample for its dry run as if it had arrived."""
    async with database.connection() as connection:
        trigger = await named(connection, name, tenant=tenant)
    source = trigger.spec.source
    if isinstance(source, CompletionSource):
        return trigger, await ended_sample(database, sample, tenant=tenant)
    if isinstance(source, FilesSource):
        return trigger, Arrival("sample", None, {"file": {} if sample.body is None else sample.body})
    if isinstance(source, TopicSource):
        return trigger, topic_sample(source, sample)
    headers = [(name.lower(), value) for name, value in sample.headers.items()]
    content = {} if sample.body is None else sample.body
    key, event = delivery_of(source.scheme, dict(headers), b"", content, names=source.names, dedupe=source.dedupe)
    event = sample.event or event
    return trigger, Arrival(key, event, _values(source, headers, content, key, event))


def _values(source: WebhookSource, headers: Headers, content: Any, key: str, event: str | None) -> dict[str, Any]:
    return {
        "body": content,
        "headers": visible(headers, names=source.names),
        "event": event or "",
        "delivery_id": key.partition(":")[2],
    }


def _reject_unknown(headers: Headers, body: bytes) -> None:
    metrics.TRIGGER_DELIVERIES.labels("webhook", "rejected").inc()
    try:
        check_signature(
            "github",
            [_UNKNOWN_SECRET],
            {"x-hub-signature-256": f"sha256={'0' * 64}"},
            body,
            names=SignatureHeaders(),
            now_s=0.0,
        )
    except BadSignature:
        return
