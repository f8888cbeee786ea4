"""Changes that are meant for what somebody has read: `ETag` on an answer, `If-Match` on the change."""

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
    """Of a definition: what happens to a job without an edit does not change it. A job made anew has another."""
    return f'"{job_id}.{version}"'


def tagged(found: wire.Job | wire.Workflow, status: int = 200, **headers: str) -> Response:
    """An answer with the tag of what it shows."""
    sent = {"ETag": tag(found.job_id, found.version), **{k.replace("_", "-"): v for k, v in headers.items()}}
    return Response(encode(found), status, sent, media_type="application/json")


def wanted(call: Call) -> list[str] | None:
    """The tags that `If-Match` names; None: none is asked for, or any is welcome."""
    given = call.request.headers.get("if-match")
    if given is None or given.strip() == "*":
        return None
    if not _TAGS.fullmatch(given):
        raise invalid("/If-Match", f"{given!r} is not an ETag", hint="send the ETag as it was given, with its quotes")
    return _TAG.findall(given)


def seen(call: Call, job_id: UUID, version: int) -> int | None:
    """The version a change is for, if it says so; an error if there is another by now."""
    tags = wanted(call)
    if tags is None:
        return None
    if tag(job_id, version) not in tags:
        raise _stale(f"the job has version {version} by now, and that is not the one this change was made for")
    return version


async def matched(call: Call, change: Awaitable[T]) -> T:
    """What happened between our look and the change is the same to whoever sent `If-Match`."""
    try:
        return await change
    except Conflict as error:
        if error.code == "version_changed" and wanted(call) is not None:
            raise _stale(error.message) from None
        raise


def _stale(message: str) -> Conflict:
    hint = "get it again, look at what has changed, and send the change with the new ETag"
    return Conflict(message, code="precondition_failed", problems=(Problem("/If-Match", message, hint),))
