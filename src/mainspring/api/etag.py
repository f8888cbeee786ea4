"""Optimistic concurrency: `ETag` on responses, `If-Match` on changes."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import TypeVar
from uuid import UUID

from starlette.responses import Response

from mainspring import wire
from mainspring.api.route import Call
from mainspring.codec import encode
from mainspring.domain.errors import Conflict, Problem, invalid

T = TypeVar("T")
_TAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"')
_TAGS = re.compile(rf"\s*{_TAG.pattern}\s*(?:,\s*{_TAG.pattern}\s*)*")


def tag(job_id: UUID, version: int) -> str:
    """Return the ETag of a definition. Only edits change it; a job that is deleted and created again has another."""
    return f'"{job_id}.{version}"'


def with_etag(found: wire.Job | wire.Workflow, status: int = 200, **headers: str) -> Response:
    """Return a response with the ETag of the definition it contains."""
    sent = {"ETag": tag(found.job_id, found.version), **{k.replace("_", "-"): v for k, v in headers.items()}}
    return Response(encode(found), status, sent, media_type="application/json")


def if_match(call: Call) -> list[str] | None:
    """Return the ETags in `If-Match`; None if the header is missing or `*`."""
    given = call.request.headers.get("if-match")
    if given is None or given.strip() == "*":
        return None
    if not _TAGS.fullmatch(given):
        raise invalid("/If-Match", f"{given!r} is not an ETag", hint="send the ETag as received, with its quotes")
    return _TAG.findall(given)


def expected_version(call: Call, job_id: UUID, version: int) -> int | None:
    """Return the version that `If-Match` demands, or None; raise a 412 if the current version is another."""
    tags = if_match(call)
    if tags is None:
        return None
    if tag(job_id, version) not in tags:
        raise _stale(f"the job has changed: its version is now {version}")
    return version


async def guard(call: Call, change: Awaitable[T]) -> T:
    """Await a change; with `If-Match`, a concurrent edit is a 412 instead of a 409."""
    try:
        return await change
    except Conflict as error:
        if error.code == "version_changed" and if_match(call) is not None:
            raise _stale(error.message) from None
        raise


def _stale(message: str) -> Conflict:
    hint = "fetch it again, review the difference, and send the change with the new ETag"
    return Conflict(message, code="precondition_failed", problems=(Problem("/If-Match", message, hint),))
