"""The addresses of every page, from the route table itself: a page that is added is looked at too."""

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
    "/runs/{ref}/decide": "?step=deploy&what=skip",
}
FRAGMENTS = ("/ui/stream", "/static/{file}", "/executions/{ref}/output")
"""What pages fetch: no pages."""


def paths() -> list[str]:
    """Every address that answers GET; what is fetched by script or is no page is found out by asking."""
    found = [r for r in routes(cast(Context, None)) if isinstance(r, Route) and "GET" in (r.methods or ())]
    return [r.path for r in found if r.path not in ("/login", *FRAGMENTS)]
