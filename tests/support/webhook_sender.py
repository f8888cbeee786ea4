"""Signs webhooks as their senders do; shares no code with the product."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx2


def hex_of(secret: str, content: bytes) -> str:
    return hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()


def github(secret: str, body: bytes, *, delivery: str = "d-1", event: str = "push") -> dict[str, str]:
    return {
        "X-Hub-Signature-256": "sha256=" + hex_of(secret, body),
        "X-GitHub-Delivery": delivery,
        "X-GitHub-Event": event,
    }


def stripe(secret: str, body: bytes, *, at: int | None = None) -> dict[str, str]:
    at = int(time.time()) if at is None else at
    return {"Stripe-Signature": f"t={at},v1={hex_of(secret, f'{at}.'.encode() + body)},v0=abc"}


def generic(
    secret: str, body: bytes, *, at: int | None = None, names: tuple[str, str] = ("X-Timestamp", "X-Signature-256")
) -> dict[str, str]:
    at = int(time.time()) if at is None else at
    return {names[0]: str(at), names[1]: hex_of(secret, f"{at}.".encode() + body)}


def standard(secret: str, body: bytes, *, event_id: str = "msg_1", at: int | None = None) -> dict[str, str]:
    at = int(time.time()) if at is None else at
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"{event_id}.{at}.".encode() + body, hashlib.sha256).digest()
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {"webhook-id": event_id, "webhook-timestamp": str(at), "webhook-signature": signature}


SIGN: dict[str, Callable[..., dict[str, str]]] = {
    "github": github,
    "stripe": stripe,
    "generic": generic,
    "standard": standard,
}


@dataclass
class Sender:
    """Sends deliveries to one address."""

    client: httpx2.AsyncClient
    path: str
    headers: dict[str, str] = field(default_factory=dict)

    async def post(self, body: bytes | Any, headers: dict[str, str]) -> httpx2.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.client.post(self.path, content=content, headers={**self.headers, **headers})
