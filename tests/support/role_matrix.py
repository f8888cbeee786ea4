"""What each role may do, and whether a request is refused for its scope."""

from __future__ import annotations

import re
from uuid import uuid4

import httpx2

MAY = {
    "viewer": {"read"},
    "submitter": {"read", "write"},
    "operator": {"read", "write", "operate"},
    "admin": {"read", "write", "operate", "exceed", "tokens", "secrets", "admin", "worker"},
    "cluster-admin": {"read", "write", "operate", "exceed", "tokens", "secrets", "admin", "worker", "cluster"},
}
"""The decision, written apart from the code. What a role is not given here is denied."""
REFUSED = "lacks the scope"
_PART = re.compile(r"\{\w+\}")


def filled(path: str) -> str:
    return _PART.sub(str(uuid4()), path)


async def is_refused(http: httpx2.AsyncClient, method: str, path: str, **sent: object) -> bool:
    """Whether a request is refused for its scope. What is let in may fail for what it asks; a stream is not read."""
    async with http.stream(method, filled(path), **sent) as answer:  # type: ignore[arg-type]
        assert answer.status_code not in (401, 500), (method, path, answer.status_code)
        return answer.status_code == 403 and REFUSED in (await answer.aread()).decode()
