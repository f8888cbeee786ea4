"""Audit entries of requests: where they came from, and those that were refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import Request

from mainspring.api.auth import COOKIE, Caller, client_address, header
from mainspring.api.context import Context
from mainspring.domain.audit_chain import CLUSTER
from mainspring.domain.errors import Forbidden, Unauthenticated
from mainspring.intake.audit_bursts import Occurrence
from mainspring.store.audit import ORIGIN, Origin

REQUEST_ID = b"x-request-id"
MAX_ROUTE_CHARS = 200
_ID = re.compile(r"[A-Za-z0-9._:+/=-]{1,64}", re.ASCII)


def origin_of(request: Request) -> Origin:
    """The origin of a request, with the id that its client or proxy gave it."""
    given = header(request.scope, REQUEST_ID)
    return Origin(client_address(request), given if given is not None and _ID.fullmatch(given) else None)


@contextmanager
def origin_recorded(request: Request) -> Iterator[Origin]:
    """Record the origin of a request with every audit entry that is written inside."""
    origin = origin_of(request)
    before = ORIGIN.set(origin)
    try:
        yield origin
    finally:
        ORIGIN.reset(before)


@contextmanager
def denials_noted(context: Context, caller: Caller, request: Request, route: str | None = None) -> Iterator[None]:
    """Record a request that the caller was denied."""
    try:
        yield
    except Forbidden as error:
        note_denial(context, caller, request, error, route)
        raise


def note_denial(context: Context, caller: Caller, request: Request, error: Forbidden, route: str | None = None) -> None:
    route = (route or f"{request.method} {request.scope['path']}")[:MAX_ROUTE_CHARS]
    context.bursts.note(
        Occurrence(caller.tenant, "request.deny", caller.name, route, route, {"code": error.code}, _origin(request))
    )


@contextmanager
def failures_noted(context: Context, request: Request) -> Iterator[None]:
    """Record a request whose credential is not valid, without what was sent. Requests without one are not recorded."""
    try:
        yield
    except Unauthenticated:
        if header(request.scope, b"authorization") is not None or COOKIE in request.cookies:
            note_failure(context, request)
        raise


def note_failure(context: Context, request: Request) -> None:
    address = client_address(request) or "unknown"
    path = f"{request.method} {request.scope['path']}"[:MAX_ROUTE_CHARS]
    context.bursts.note(
        Occurrence(CLUSTER, "login.fail", "anonymous", address, address, {"route": path}, _origin(request))
    )


def note_login(context: Context, caller: Caller, request: Request, action: str) -> None:
    """Record that a browser signed in or out. Sessions of one token in a minute are counted together."""
    details = {"session_id": str(caller.session_id)}
    subject = str(caller.token_id)
    context.bursts.note(
        Occurrence(caller.tenant, action, caller.name, subject, caller.name.name, details, _origin(request))
    )


def _origin(request: Request) -> Origin:
    return ORIGIN.get() or origin_of(request)
