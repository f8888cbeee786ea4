"""Routes of artifacts: streamed uploads from workers, streamed downloads."""

from __future__ import annotations

import re
from urllib.parse import quote
from uuid import UUID

from starlette.responses import Response, StreamingResponse

from mainspring import wire
from mainspring.api.executions import EXECUTION
from mainspring.api.route import Call, Table, bad_query
from mainspring.api.worker_identity import require_attempt
from mainspring.intake.artifacts import ArtifactSender
from mainspring.views import executions as execution_views

table = Table()
LENGTH = re.compile(r"\d{1,18}+", re.ASCII)
MAX_SIZE = 10**18
_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,64}/[A-Za-z0-9!#$&^_.+-]{1,64}(; ?charset=[A-Za-z0-9_-]{1,32})?\Z")


@table.route(
    "POST",
    "/api/v1/worker/artifacts",
    scope="worker",
    status=204,
    query=("session_id", "execution_id", "attempt", "name", "size"),
)
async def upload(call: Call) -> None:
    """Upload an artifact of a running attempt; the body is its content.

    With `size`, nothing is uploaded: the response says whether an artifact of that size is accepted.
    """
    sender = ArtifactSender(_uuid(call, "session_id"), _uuid(call, "execution_id"), call.number("attempt", 0))
    await require_attempt(call, sender.session_id, sender.execution_id, sender.attempt)
    if call.query("size") is not None:
        await call.context.artifacts.check(sender, call.query("name") or "", call.number("size", 0, most=MAX_SIZE))
        return
    call.allow_long_body()
    length, kind = call.request.headers.get("content-length", ""), call.request.headers.get("content-type", "")
    await call.context.artifacts.receive(
        sender,
        call.query("name") or "",
        call.request.stream(),
        content_type=kind if _TYPE.match(kind) else "application/octet-stream",
        declared=int(length) if LENGTH.fullmatch(length) else None,
    )


@table.route(
    "GET",
    "/api/v1/worker/artifacts",
    scope="worker",
    query=("session_id", "execution_id", "attempt", "name", "source", "step", "job"),
)
async def fetch(call: Call) -> Response:
    """Download an artifact of an earlier execution for a running attempt."""
    sender = ArtifactSender(_uuid(call, "session_id"), _uuid(call, "execution_id"), call.number("attempt", 0))
    await require_attempt(call, sender.session_id, sender.execution_id, sender.attempt)
    found, chunks = await call.context.artifacts.open_for(
        sender,
        call.query("name") or "",
        job=call.query("job"),
        source=None if call.query("source") is None else _uuid(call, "source"),
        step=None if call.query("step") is None else call.number("step", 0),
    )
    headers = {"Content-Length": str(found.bytes), "ETag": f'"{found.sha256}"'}
    return StreamingResponse(chunks, headers=headers, media_type="application/octet-stream")


@table.route("GET", EXECUTION + "/artifacts", scope="read", response=wire.Page[wire.Artifact])
async def list_artifacts(call: Call) -> wire.Page[wire.Artifact]:
    """List the artifacts of an execution."""
    found = await call.context.artifacts.listed(await _id(call), tenant=call.tenant)
    return wire.Page(items=found)


@table.route("GET", EXECUTION + "/artifacts/content", scope="read", query=("name",))
async def download(call: Call) -> Response:
    """Download an artifact."""
    found, chunks = await call.context.artifacts.open(await _id(call), call.query("name") or "", tenant=call.tenant)
    file = found.name.rpartition("/")[2]
    headers = {
        "Content-Length": str(found.bytes),
        # A browser must never render it as a page of this server, whatever its type.
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file, safe='')}",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "X-Content-Type-Options": "nosniff",
        "ETag": f'"{found.sha256}"',
    }
    return StreamingResponse(chunks, headers=headers, media_type=found.content_type)


async def _id(call: Call) -> UUID:
    found = await execution_views.get(call.context.database, call.path("ref"), tenant=call.tenant)
    return found.execution_id


def _uuid(call: Call, name: str) -> UUID:
    try:
        return UUID(call.query(name) or "")
    except ValueError:
        raise bad_query(name, f"{call.query(name)!r} is not an id") from None
