"""Pages."""

from __future__ import annotations

from starlette.routing import BaseRoute

from mainspring.api.context import Context


def routes(context: Context) -> list[BaseRoute]:
    return []
