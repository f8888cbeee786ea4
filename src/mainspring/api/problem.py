"""Errors as problem documents (RFC 9457), and the HTTP status of each error class."""

from __future__ import annotations

import math
from typing import Any

from starlette.responses import Response

from mainspring.codec import encode
from mainspring.domain import errors

SAFE_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
"""Sent with every response of the API: browsers must not guess its type, and nothing may store it."""
STATUS: dict[type[errors.MainspringError], int] = {
    errors.Invalid: 422,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.TooLarge: 413,
    errors.TooMany: 429,
    errors.Unavailable: 503,
    errors.MainspringError: 500,
}
CODES = {
    "not_json": 400,
    "too_deep": 400,
    "bad_query": 400,
    "bad_idempotency_key": 400,
    "cycle": 400,
    "precondition_failed": 412,
}
TITLES = {
    400: "Malformed request",
    401: "Authentication required",
    403: "Permission denied",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "Conflict",
    412: "Precondition failed",
    413: "Content too large",
    422: "Invalid request",
    429: "Too many requests",
    431: "Request head too large",
    500: "Internal error",
    503: "Service unavailable",
}


def status_of(error: errors.MainspringError) -> int:
    if error.code in CODES:
        return CODES[error.code]
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def document(status: int, code: str, detail: str, problems: tuple[errors.Problem, ...] = ()) -> dict[str, Any]:
    return {
        "type": "about:blank",
        "title": TITLES.get(status, "Error"),
        "status": status,
        "detail": errors.clipped(detail, errors.MAX_MESSAGE_CHARS),
        "code": code,
        "errors": [_shown(p) for p in problems],
    }


def _shown(problem: errors.Problem) -> dict[str, str]:
    return {
        "pointer": errors.clipped(problem.pointer, errors.MAX_POINTER_CHARS),
        "message": errors.clipped(problem.message, errors.MAX_MESSAGE_CHARS),
        "hint": errors.clipped(problem.hint, errors.MAX_MESSAGE_CHARS),
    }


def problem(status: int, code: str, detail: str, problems: tuple[errors.Problem, ...] = ()) -> Response:
    headers = {"Retry-After": "1"} if status == 503 else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = encode(document(status, code, detail, problems))
    response = Response(body, status, headers, media_type="application/problem+json")
    response.raw_headers.extend(SAFE_HEADERS)
    return response


def problem_of(error: errors.MainspringError) -> Response:
    response = problem(status_of(error), error.code, error.message, error.problems)
    response.headers.update(retry_headers(error))
    return response


def retry_headers(error: errors.MainspringError) -> dict[str, str]:
    """Return the header that says when to try again, of errors that pass."""
    if isinstance(error, errors.TooMany):
        return {"Retry-After": str(max(1, math.ceil(error.retry_after_s)))}
    return {"Retry-After": "1"} if status_of(error) == 503 else {}
