"""The API reference, rendered from the server's own OpenAPI document."""

from __future__ import annotations

import json
from functools import cache

from starlette.responses import Response

from mainspring.api.app import endpoints
from mainspring.api.openapi import document
from mainspring.codec import encode
from mainspring.domain.errors import NotFound
from mainspring.web import render
from mainspring.web.draw.api_reference import ApiReference
from mainspring.web.endpoint import PageRequest

MAX_SEARCH_CHARS = 200


@cache
def reference() -> ApiReference:
    return ApiReference(json.loads(encode(document(endpoints()))))


async def operations(request: PageRequest) -> Response:
    """GET /api/docs: the operations by tag; `q` filters them."""
    search = request.query("q")[:MAX_SEARCH_CHARS]
    return render.page("api_docs.html", request.caller, search=search, tags=reference().tags(search))


async def operation(request: PageRequest) -> Response:
    """GET /api/docs/{ref}: one operation with its parameters, types and an example."""
    operation_id, api = request.ref, reference()
    found = api.operation(operation_id)
    if found is None:
        raise NotFound(f"there is no operation {operation_id[:100]!r}; /api/docs lists them")
    server = f"{request.http.url.scheme}://{request.http.url.netloc}"
    return render.page(
        "api_operation.html",
        request.caller,
        operation=found,
        parameters=api.parameters(operation_id),
        responses=api.responses(operation_id),
        types=api.types(operation_id),
        curl=api.curl(operation_id, server),
    )
