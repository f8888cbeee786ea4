"""The router chooses the endpoint that Starlette's own matching would choose."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from mainspring.api.app import endpoints
from mainspring.api.router import PathTable

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# Also a parameter declared before the fixed segment that it covers: the order of declaration decides.
PATHS = [(e.method, e.path) for e in endpoints()] + [
    ("GET", "/x/{a}"),
    ("GET", "/x/fixed"),
    ("GET", "/x/first/{b}"),
    ("GET", "/x/{a}/last"),
    ("POST", "/x/{a}/{b}"),
    ("POST", "/x/{b}/last"),
    ("PUT", "/x/fixed"),
    ("PUT", "/x/{a}"),
]
SEGMENTS = sorted({segment for _, path in PATHS for segment in path.split("/") if not segment.startswith("{")})


def named(method: str, path: str) -> Callable[[Request], Awaitable[Response]]:
    async def respond(_: Request) -> Response:
        raise AssertionError

    respond.__name__ = f"{method} {path}"
    return respond


TABLE = PathTable()
ROUTES = []
for _method, _path in PATHS:
    _respond = named(_method, _path)
    TABLE.add(_method, _path, _respond)
    ROUTES.append(Route(_path, _respond, methods=[_method]))


def by_starlette(method: str, path: str) -> tuple[str, dict[str, str]] | None:
    scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}
    for route in ROUTES:
        match, child = route.matches(scope)
        if match is Match.FULL:
            return child["endpoint"].__name__, child["path_params"]
    return None


segment = st.one_of(st.sampled_from(SEGMENTS), st.sampled_from(["last", "fixed", "%2F", "{ref}"]), st.text(max_size=4))


@given(st.sampled_from(METHODS), st.lists(segment, max_size=8))
@example("GET", ["x", "fixed"])
@example("GET", ["x", "first", "last"])
@example("POST", ["x", "any", "last"])
@example("GET", ["api", "v1", "jobs", ""])
@example("GET", ["api", "v1", "jobs\n"])
@example("GET", ["api", "v1", "jobs", "a\n"])
@example("PUT", ["x", "fixed\n"])
@example("POST", ["api", "v1", "jobs", "", "trigger"])
@example("POST", ["api", "v1", "jobs", "a", "trigger", ""])
def test_same_endpoint_as_starlette(method: str, segments: list[str]) -> None:
    path = "/" + "/".join(segments)
    found = TABLE.find(method, path)
    if found is None:  # left to Starlette, which is right by definition
        return
    respond, params = found
    assert (respond.__name__, params) == by_starlette(method, path)


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_every_endpoint_is_found_without_starlette(method: str, path: str) -> None:
    """Or it is hidden behind one that was declared before it."""
    filled = path.replace("{", "a").replace("}", "b")
    found = TABLE.find(method, filled)
    assert found is not None
    assert (found[0].__name__, found[1]) == by_starlette(method, filled)
