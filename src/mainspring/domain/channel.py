"""Notification channels: webhook, Slack, PagerDuty, mail, and services that apprise supports."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec

from mainspring.domain.errors import Problem
from mainspring.domain.events import SUBSCRIBED

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
SECRET_PREFIX = "whsec_"
PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"
_MAIL = re.compile(r"[^@\s,;<>]+@[^@\s,;<>]+\Z")

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]


class WebhookTarget(msgspec.Struct, frozen=True, tag="webhook", tag_field="kind", forbid_unknown_fields=True):
    """Posts signed JSON to a URL. Without a secret, one is generated and shown once."""

    url: Text
    secret: Text | None = None


class SlackTarget(msgspec.Struct, frozen=True, tag="slack", tag_field="kind", forbid_unknown_fields=True):
    """A Slack incoming webhook, or a compatible service. Its URL is a secret."""

    url: Text | None = None


class PagerDutyTarget(msgspec.Struct, frozen=True, tag="pagerduty", tag_field="kind", forbid_unknown_fields=True):
    """PagerDuty Events v2: a firing alert opens an incident, a resolved one closes it."""

    routing_key: Text | None = None
    url: Text = PAGERDUTY


class SmtpTarget(msgspec.Struct, frozen=True, tag="smtp", tag_field="kind", forbid_unknown_fields=True):
    """Mail over SMTP. `tls` defaults to starttls; credentials are never sent without TLS."""

    host: Text
    sender: Text
    to: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=50)]
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 587
    tls: Literal["starttls", "tls", "none"] = "starttls"
    username: str | None = None
    password: Text | None = None


class AppriseTarget(msgspec.Struct, frozen=True, tag="apprise", tag_field="kind", forbid_unknown_fields=True):
    """A service that the apprise library supports, given by its URL, which is a secret."""

    url: Text | None = None


Target = WebhookTarget | SlackTarget | PagerDutyTarget | SmtpTarget | AppriseTarget

SECRETS: dict[str, tuple[str, ...]] = {
    "webhook": ("secret",),
    "slack": ("url",),
    "pagerduty": ("routing_key",),
    "smtp": ("password",),
    "apprise": ("url",),
}
"""Secret fields: written, never returned."""
_REQUIRED = {"slack": "url", "pagerduty": "routing_key", "apprise": "url"}


def kind_of(target: Target) -> str:
    return str(target.__struct_config__.tag)


def split(target: Target) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a target into public and secret fields."""
    fields = msgspec.to_builtins(target)
    kind = fields.pop("kind")
    hidden = {name: fields.pop(name) for name in SECRETS[kind]}
    return fields, {name: value for name, value in hidden.items() if value is not None}


def joined(kind: str, shown: dict[str, Any], hidden: dict[str, Any]) -> Target:
    target: Target = msgspec.convert({"kind": kind, **shown, **hidden}, Target)
    return target


def secret_bytes(secret: str) -> bytes:
    """Decode a webhook secret: `whsec_` and base64, as Standard Webhooks defines it."""
    return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)


def channel_problems(name: str, target: Target, events: Sequence[str]) -> list[Problem]:
    """Return all problems of a channel."""
    found = []
    if not NAME.match(name):
        hint = "lower case letters, digits, '_', '-'; at most 63"
        found.append(Problem("/name", f"{name!r} is not a channel name", hint))
    for number, event in enumerate(events):
        if event not in SUBSCRIBED:
            known = ", ".join(SUBSCRIBED)
            found.append(Problem(f"/events/{number}", f"{event!r} is not an event to subscribe to", f"known: {known}"))
    kind = kind_of(target)
    if (needed := _REQUIRED.get(kind)) is not None and getattr(target, needed) is None:
        found.append(Problem(f"/target/{needed}", f"a {kind} channel needs its {needed}", "add it"))
    if isinstance(target, SmtpTarget):
        found += _mail_problems(target)
    elif not isinstance(target, AppriseTarget) and target.url is not None:
        found += _url_problems(target.url)
    if isinstance(target, WebhookTarget) and target.secret is not None:
        found += _secret_problems(target.secret)
    return found


def _url_problems(url: str) -> list[Problem]:
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("https", "http") and parts.hostname and (parts.port or 1) > 0
    except ValueError:
        return [Problem("/target/url", "this is not a URL", "write it like https://example.com/hook")]
    if not fine:
        return [Problem("/target/url", "this is not an http or https URL", "write it like https://example.com/hook")]
    if parts.username is not None or parts.password is not None:
        return [Problem("/target/url", "a password in the URL would be visible", "verify the signature instead")]
    return []


def _secret_problems(secret: str) -> list[Problem]:
    hint = "leave it out and one is made, or give whsec_ and 24 to 64 bytes in base64"
    try:
        key = secret_bytes(secret)
    except (binascii.Error, ValueError):
        return [Problem("/target/secret", "the secret is not base64", hint)]
    return [] if 24 <= len(key) <= 64 else [Problem("/target/secret", f"the secret has {len(key)} bytes", hint)]


def _mail_problems(target: SmtpTarget) -> list[Problem]:
    addresses = [("/target/sender", target.sender), *((f"/target/to/{n}", to) for n, to in enumerate(target.to))]
    found = [
        Problem(pointer, f"{address!r} is not a mail address", "write it like ops@example.com")
        for pointer, address in addresses
        if not _MAIL.match(address)
    ]
    if (target.username is None) != (target.password is None):
        found.append(Problem("/target/password", "username and password go together", "give both or neither"))
    if target.username is not None and target.tls == "none":
        found.append(Problem("/target/tls", "a password is not sent in the clear", "use starttls or tls"))
    return found
