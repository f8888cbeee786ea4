"""Errors as problem documents (RFC 9457), and the HTTP status of each error class."""

from __future__ import annotations

import math
from typing import Any

from starlette.responses import Response

from mainspring.codec import encode
from mainspring.domain import errors

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
CODES = {"not_json": 400, "too_deep": 400, "bad_query": 400, "cycle": 400, "precondition_failed": 412}
TITLES = {
    400: "Malformed request",
    401: "Authentication required",
    403: "Permission denied",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    412: "Precondition failed",
    413: "Content too large",
    422: "Invalid request",
    429: "Too many requests",
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
        "detail": detail,
        "code": code,
        "errors": [{"pointer": p.pointer, "message": p.message, "hint": p.hint} for p in problems],
    }


def problem(status: int, code: str, detail: str, problems: tuple[errors.Problem, ...] = ()) -> Response:
    headers = {"Retry-After": "1"} if status == 503 else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = encode(document(status, code, detail, problems))
    return Response(body, status, headers, media_type="application/problem+json")


def problem_of(error: errors.MainspringError) -> Response:
    response = problem(status_of(error), error.code, error.message, error.problems)
    if isinstance(error, errors.TooMany):
        response.headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    return response
