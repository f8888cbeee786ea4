"""Signatures of incoming webhooks, and the id and event that a delivery states.

Schemes: GitHub, Stripe, Standard Webhooks, and HMAC-SHA256 under header names that the sender chooses. Signatures are
compared in constant time, with every active secret. Header names are in lower case.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mainspring.domain.channel import secret_bytes

Scheme = Literal["github", "stripe", "standard", "generic"]
Dedupe = Literal["id", "body"]

TOLERANCE_S = 300
"""How far the signed timestamp may be from now, in both directions."""
MAX_SIGNATURES = 10
"""Signatures of one request that are compared; a sender that rotates its secret sends two."""
MAX_KEY_CHARS = 200
UNSEEN = frozenset(("authorization", "cookie", "proxy-authorization"))
"""Headers that conditions and parameters cannot read."""
_TIMESTAMP = re.compile(r"[0-9]{1,12}\Z")
_HEX = re.compile(r"[0-9a-fA-F]{64}\Z")


class BadSignature(Exception):
    """A request is not signed as its trigger demands; the message names the reason, never a value."""


@dataclass(frozen=True, slots=True)
class SignatureHeaders:
    """Where a sender of the generic scheme puts things. `delivery` and `event` are optional."""

    signature: str = "x-signature-256"
    timestamp: str = "x-timestamp"
    delivery: str | None = None
    event: str | None = None


@dataclass(frozen=True, slots=True)
class _Signed:
    """What was signed, before the body, and the signatures that the request carries."""

    prefix: bytes
    given: list[bytes]


def standard_signature(secret: str, *, event_id: str, at_s: int, body: bytes) -> str:
    """The signature of Standard Webhooks: `v1,` and base64 of HMAC-SHA256 over id, timestamp and body."""
    digest = _digest(secret_bytes(secret), f"{event_id}.{at_s}.".encode(), body)
    return f"v1,{base64.b64encode(digest).decode()}"


def check_signature(
    scheme: Scheme,
    secrets: Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    *,
    names: SignatureHeaders,
    now_s: float,
) -> None:
    """Raise BadSignature unless the request is signed with one of the secrets, and recently."""
    signed = _SCHEMES[scheme](headers, names, now_s)
    matched = False
    for secret in secrets:  # all of them: the time does not depend on which one matches
        key = secret_bytes(secret) if scheme == "standard" else secret.encode()
        wanted = _digest(key, signed.prefix, body)
        for one in signed.given:
            matched |= hmac.compare_digest(wanted, one)
    if not matched:
        raise BadSignature("the signature does not match the body and any active secret")


def delivery_of(
    scheme: Scheme,
    headers: Mapping[str, str],
    body: bytes,
    content: Any,
    *,
    names: SignatureHeaders,
    dedupe: Dedupe,
) -> tuple[str, str | None]:
    """The key by which equal deliveries are recognized, and the name of the event; `content` is the decoded body."""
    fields = content if isinstance(content, dict) else {}
    stated: Any
    event: Any
    match scheme:
        case "github":
            stated, event = headers.get("x-github-delivery"), headers.get("x-github-event")
        case "stripe":
            stated, event = fields.get("id"), fields.get("type")
        case "standard":
            stated, event = headers.get("webhook-id"), fields.get("type")
        case "generic":
            stated = headers.get(names.delivery) if names.delivery else None
            event = headers.get(names.event) if names.event else None
    event = event[:MAX_KEY_CHARS] if isinstance(event, str) and event else None
    if dedupe == "body":
        return f"body:{hashlib.sha256(body).hexdigest()}", event
    if isinstance(stated, str) and stated.strip():
        stated = stated.strip()
        long = len(stated) > MAX_KEY_CHARS - 3
        return f"id:{hashlib.sha256(stated.encode()).hexdigest() if long else stated}", event
    # Without an id, a request that is sent again with the same signature is the same delivery.
    timestamp = headers.get(names.timestamp, "") if scheme == "generic" else ""
    return f"body:{hashlib.sha256(timestamp.encode() + b'.' + body).hexdigest()}", event


def visible(headers: Iterable[tuple[str, str]], *, names: SignatureHeaders) -> dict[str, str]:
    """The headers that conditions and parameters can read: no credentials and no signature."""
    hidden = UNSEEN | {names.signature, "x-hub-signature-256", "x-hub-signature", "stripe-signature"}
    return {name: value for name, value in headers if name not in hidden and name != "webhook-signature"}


def example_curl(scheme: Scheme, url: str, *, names: SignatureHeaders) -> str:
    """A command for a shell that signs a body as the scheme demands and sends it. `$SECRET` is the trigger's."""
    lines = ['body=\'{"hello": "world"}\'']
    hmac_hex = "openssl dgst -sha256 -hmac \"$SECRET\" | sed 's/^.* //'"
    send = f"curl -X POST '{url}' -H 'Content-Type: application/json' --data-binary \"$body\""
    if scheme == "github":
        lines += [
            f'signature=$(printf %s "$body" | {hmac_hex})',
            f'{send} -H "X-Hub-Signature-256: sha256=$signature" -H "X-GitHub-Event: push"'
            ' -H "X-GitHub-Delivery: $(date +%s%N)"',
        ]
    elif scheme == "stripe":
        lines[0] = 'body=\'{"id": "evt_1", "type": "invoice.paid"}\''
        lines += [
            'at=$(date +%s); signature=$(printf %s "$at.$body" | ' + hmac_hex + ")",
            f'{send} -H "Stripe-Signature: t=$at,v1=$signature"',
        ]
    elif scheme == "standard":
        key = "$(printf %s \"${SECRET#whsec_}\" | base64 -d | od -An -vtx1 | tr -d ' \\n')"
        lines += [
            f'at=$(date +%s); id=msg_$at; key="{key}"',
            'signature=$(printf %s "$id.$at.$body"'
            ' | openssl dgst -sha256 -mac HMAC -macopt "hexkey:$key" -binary | base64)',
            f'{send} -H "webhook-id: $id" -H "webhook-timestamp: $at" -H "webhook-signature: v1,$signature"',
        ]
    else:
        lines += [
            'at=$(date +%s); signature=$(printf %s "$at.$body" | ' + hmac_hex + ")",
            f'{send} -H "{names.timestamp}: $at" -H "{names.signature}: sha256=$signature"',
        ]
    return "\n".join(lines)


def _digest(key: bytes, prefix: bytes, body: bytes) -> bytes:
    digest = hmac.new(key, prefix, hashlib.sha256)
    digest.update(body)
    return digest.digest()


def _github(headers: Mapping[str, str], names: SignatureHeaders, now_s: float) -> _Signed:
    value = _required(headers, "x-hub-signature-256")
    scheme, _, digits = value.partition("=")
    if scheme != "sha256":
        raise BadSignature("x-hub-signature-256 must be `sha256=` and 64 hexadecimal digits")
    return _Signed(b"", [_hex("x-hub-signature-256", digits)])


def _stripe(headers: Mapping[str, str], names: SignatureHeaders, now_s: float) -> _Signed:
    at: str | None = None
    given: list[bytes] = []
    for part in _required(headers, "stripe-signature").split(",")[: MAX_SIGNATURES * 2]:
        name, _, value = part.strip().partition("=")
        if name == "t":
            at = value
        elif name == "v1" and len(given) < MAX_SIGNATURES:
            given.append(_hex("stripe-signature", value))
    if at is None or not given:
        raise BadSignature("stripe-signature must have `t=` and `v1=`")
    _recent("stripe-signature", at, now_s)
    return _Signed(f"{at}.".encode(), given)


def _standard(headers: Mapping[str, str], names: SignatureHeaders, now_s: float) -> _Signed:
    at, event_id = _required(headers, "webhook-timestamp"), _required(headers, "webhook-id")
    _recent("webhook-timestamp", at, now_s)
    given = []
    for part in _required(headers, "webhook-signature").split(" ")[:MAX_SIGNATURES]:
        version, _, value = part.partition(",")
        if version == "v1":
            try:
                given.append(base64.b64decode(value, validate=True))
            except ValueError:
                raise BadSignature("webhook-signature must be `v1,` and base64") from None
    if not given:
        raise BadSignature("webhook-signature must be `v1,` and base64")
    return _Signed(f"{event_id}.{at}.".encode(), given)


def _generic(headers: Mapping[str, str], names: SignatureHeaders, now_s: float) -> _Signed:
    at = _required(headers, names.timestamp)
    _recent(names.timestamp, at, now_s)
    value = _required(headers, names.signature)
    return _Signed(f"{at}.".encode(), [_hex(names.signature, value.removeprefix("sha256="))])


def _required(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name, "")
    if not value:
        raise BadSignature(f"the header {name} is missing")
    return value


def _hex(name: str, digits: str) -> bytes:
    if not _HEX.match(digits):
        raise BadSignature(f"{name} must have 64 hexadecimal digits")
    return bytes.fromhex(digits)


def _recent(name: str, at: str, now_s: float) -> None:
    if not _TIMESTAMP.match(at):
        raise BadSignature(f"{name} must have the time in seconds since 1970")
    if abs(now_s - int(at)) > TOLERANCE_S:
        raise BadSignature(f"the timestamp in {name} is more than {TOLERANCE_S} s from now")


_SCHEMES = {"github": _github, "stripe": _stripe, "standard": _standard, "generic": _generic}
