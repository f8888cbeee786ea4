"""Signs webhooks as specified by Standard Webhooks: HMAC-SHA256 over id, timestamp and body."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping

from mainspring.domain.channel import SECRET_PREFIX, secret_bytes

TOLERANCE_S = 300


def new_secret() -> str:
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def signed(secret: str, *, event_id: str, at_s: int, body: bytes) -> dict[str, str]:
    """Return the three signature headers of a webhook."""
    content = f"{event_id}.{at_s}.".encode() + body
    digest = hmac.new(secret_bytes(secret), content, hashlib.sha256).digest()
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def verified(secret: str, headers: Mapping[str, str], body: bytes, *, now_s: float) -> bool:
    """Whether a webhook was signed with this secret within the last five minutes. For receivers."""
    try:
        at_s = int(headers["webhook-timestamp"])
        wanted = signed(secret, event_id=headers["webhook-id"], at_s=at_s, body=body)["webhook-signature"]
        given = headers["webhook-signature"].split()
    except (KeyError, ValueError):
        return False
    return abs(now_s - at_s) <= TOLERANCE_S and any(hmac.compare_digest(wanted, one) for one in given)
