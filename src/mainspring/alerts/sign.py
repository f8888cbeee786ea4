"""Signs webhooks as specified by Standard Webhooks: HMAC-SHA256 over id, timestamp and body."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from mainspring.domain.webhook import TOLERANCE_S, standard_signature


def signed(secret: str, *, event_id: str, at_s: int, body: bytes) -> dict[str, str]:
    """Return the three signature headers of a webhook."""
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": standard_signature(secret, event_id=event_id, at_s=at_s, body=body),
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
