"""Server-sent events: encoding and responses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import StreamingResponse

from mainspring.codec import encode

COMMENT = b": keep-alive\n\n"


def event(name: str, data: Any, *, id_: str | None = None) -> bytes:
    head = f"id: {id_}\n" if id_ else ""
    return f"{head}event: {name}\ndata: ".encode() + encode(data) + b"\n\n"


def stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(
        events, media_type="text/event-stream", headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )
