"""Server-sent events: encoding and responses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from mainspring.api.open_streams import LiveResponse
from mainspring.api.route import Call
from mainspring.codec import encode

COMMENT = b": keep-alive\n\n"


def event(name: str, data: Any, *, id_: str | None = None) -> bytes:
    head = f"id: {id_}\n" if id_ else ""
    return f"{head}event: {name}\ndata: ".encode() + encode(data) + b"\n\n"


def stream(call: Call, events: AsyncIterator[bytes]) -> LiveResponse:
    return LiveResponse(call.context.streams, call.caller, events)
