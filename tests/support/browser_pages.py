"""The paths of all pages, read from the route table, so that new pages are covered too."""

from __future__ import annotations

from typing import cast

from starlette.routing import Route

from mainspring.api.context import Context
from mainspring.web.app import routes

QUERIES = {
    "/jobs/{ref}/rollback": "?version=1",
    "/jobs/{ref}/schedule": "?expression=every+2h",
    "/search": "?q=report",
    "/failures/plan": "?job=export-ledger",
    "/playground": "?expression=0+9+*+*+MON",
    "/new": "?expression=every+1h",
    "/alerts": "?edit=queue_lag_short",
    "/workflows/new": "?example=sequence",
    "/runs/{ref}/decide": "?step=deploy&what=skip",
}
FRAGMENTS = ("/ui/stream", "/static/{file}", "/executions/{ref}/output")
"""Paths that pages fetch, which are not pages themselves."""


def paths() -> list[str]:
    """Return every path that answers GET with a page."""
    found = [r for r in routes(cast(Context, None)) if isinstance(r, Route) and "GET" in (r.methods or ())]
    return [r.path for r in found if r.path not in ("/login", "/login/callback", *FRAGMENTS)]
