"""Notification channels: webhook, Slack, PagerDuty, mail, and services that apprise supports."""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlsplit

import msgspec

from mainspring.domain.bounds import Name
from mainspring.domain.errors import Invalid, Problem
from mainspring.domain.events import SUBSCRIBED
from mainspring.domain.secret import whole_reference

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
SECRET_PREFIX = "whsec_"
PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"
_ROUTING_KEY = re.compile(r"[A-Za-z0-9_-]{1,200}\Z")
_APPRISE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+\Z")
_HOST = re.compile(r"[A-Za-z0-9_:.%-]+\Z")
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
    to: Annotated[tuple[Name, ...], msgspec.Meta(min_length=1, max_length=50)]
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 587
    tls: Literal["starttls", "tls", "none"] = "starttls"
    username: Name | None = None
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
ADDRESSES: dict[str, tuple[str, ...]] = {
    "webhook": ("url",),
    "slack": (),
    "pagerduty": ("url",),
    "smtp": ("host", "port", "tls", "username"),
    "apprise": (),
}
"""Where secrets are used, and how. A secret stays with its address; of slack and apprise it is the address."""
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


def kept_secrets(target: Target, shown: Mapping[str, Any], hidden: Mapping[str, Any]) -> Target:
    """Add to a target of the same kind the secrets that it leaves out.

    Refused for another address: an editor of the channel could send its secrets, or messages that they sign, to a
    server of their own.
    """
    kind = kind_of(target)
    kept = {field: hidden[field] for field in SECRETS[kind] if getattr(target, field) is None and field in hidden}
    if not kept:
        return target
    moved = [field for field in ADDRESSES[kind] if getattr(target, field) != shown.get(field)]
    if moved:
        raise Invalid(
            f"the {moved[0]} of the channel changes, so its {next(iter(kept))} must be given again",
            code="secret_needed",
            problems=tuple(
                Problem(
                    f"/target/{field}",
                    f"the {moved[0]} of the channel changes, so its {field} must be given again",
                    f"send {field} with the new address, or leave {' and '.join(moved)} as before",
                )
                for field in kept
            ),
        )
    return msgspec.structs.replace(target, **kept)


MASK = "•••"


def without_secrets(text: str, target: Target) -> str:
    """Return a text of an error or a receiver with every secret of the target masked."""
    for secret in sorted(_secret_texts(target), key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


def _secret_texts(target: Target) -> set[str]:
    """The secrets, and of secret URLs the part after the host, plain and as it is sent and quoted."""
    found = set()
    for field in SECRETS[kind_of(target)]:
        value = getattr(target, field)
        if not value:
            continue
        found.add(value)
        if field == "url":
            found |= _url_parts(value)
        else:
            found.add(base64.b64encode(value.encode()).decode())
    found |= {repr(text)[1:-1] for text in found} | {quote(text, safe="/:?=&") for text in found}
    return {text for text in found if len(text) >= SHORTEST_MASKED}


def _url_parts(url: str) -> set[str]:
    _, _, rest = url.partition("://")
    user, at, _ = rest.partition("/")[0].rpartition("@")
    path = rest.partition("/")[2]
    return {rest, path, f"/{path}", *([user, *user.split(":")] if at else []), path.rpartition("/")[2]}


SHORTEST_MASKED = 4
"""A shorter one would mask ordinary words, and is no secret."""


def new_secret() -> str:
    """Return a new signing secret."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


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
    return [*found, *_target_problems(target)]


def _target_problems(target: Target) -> list[Problem]:
    """Return the problems of a target. A reference to a secret is checked when it is used."""
    kind = kind_of(target)
    found = []
    if (needed := _REQUIRED.get(kind)) is not None and getattr(target, needed) is None:
        found.append(Problem(f"/target/{needed}", f"a {kind} channel needs its {needed}", "add it"))
    given = {field: getattr(target, field) for field in ("url", "secret", "routing_key") if hasattr(target, field)}
    for field, value in given.items():
        if value is None or (field in SECRETS[kind] and whole_reference(value) is not None):
            continue
        if isinstance(target, AppriseTarget):
            if not _APPRISE.match(value):
                hint = "write it like mailto://user:pass@host"
                found.append(Problem("/target/url", "this is not an apprise URL", hint))
        else:
            found += _FIELD_PROBLEMS[field](value)
    if isinstance(target, SmtpTarget):
        found += _mail_problems(target)
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


def _routing_key_problems(key: str) -> list[Problem]:
    if _ROUTING_KEY.match(key):
        return []
    what = "a URL" if "://" in key else "not a routing key"
    hint = "give the integration key of the PagerDuty service; the endpoint is `url` (--pagerduty-url)"
    return [Problem("/target/routing_key", f"the routing key is {what}", hint)]


def signing_secret_problems(secret: str) -> list[Problem]:
    """Return the problems of a signing secret that a user has given."""
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
    if not _HOST.match(target.host):
        found.append(Problem("/target/host", f"{target.host!r} is not a host name", "write it like mail.example.com"))
    if (target.username is None) != (target.password is None):
        found.append(Problem("/target/password", "username and password go together", "give both or neither"))
    if target.username is not None and target.tls == "none":
        found.append(Problem("/target/tls", "a password is not sent in the clear", "use starttls or tls"))
    return found


_FIELD_PROBLEMS = {
    "url": _url_problems,
    "secret": signing_secret_problems,
    "routing_key": _routing_key_problems,
}
