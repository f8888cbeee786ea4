"""Request paths, and the references that name what they address."""

from __future__ import annotations

from urllib.parse import quote
from uuid import UUID

from mainspring.client.transport import Params
from mainspring.domain.errors import NotFound

Ref = str | UUID
"""A job's name or id; the id of an execution or run, a unique prefix of it, or `@last`."""


def path_of(nouns: str, ref: Ref, action: str = "") -> str:
    # Proxies and servers resolve "." and ".." as folders.
    if str(ref) in ("", ".", ".."):
        raise NotFound(f"no {nouns.removesuffix('s')} is called {str(ref)!r}")
    return f"/api/v1/{nouns}/{quote(str(ref), safe='')}" + (f"/{action}" if action else "")


def job_path(ref: Ref, action: str = "") -> str:
    return path_of("jobs", ref, action)


def deletion(reason: str, detach: bool) -> Params:
    """Query parameters of a deletion."""
    return {"reason": reason or None, "cascade": "detach" if detach else None}
