"""Errors as problem documents (RFC 9457). One table maps codes of the tree to HTTP status."""

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
    400: "The request can't be read",
    401: "Who are you?",
    403: "Not allowed",
    404: "Not found",
    405: "Not possible here",
    409: "In conflict with what is there",
    412: "Changed meanwhile",
    413: "Too large",
    422: "The request does not fit",
    429: "Too many",
    500: "Our fault",
    503: "Not available right now",
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
    answer = problem(status_of(error), error.code, error.message, error.problems)
    if isinstance(error, errors.TooMany):
        answer.headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    return answer
