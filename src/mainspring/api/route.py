"""The typed route table: one entry says who may call, what goes in and what comes out.

Every endpoint goes through `serve`: authenticate, check the right, read the body as its type, call, encode.
There is no other way in, so nothing can be open by accident. OpenAPI is made from the same table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mainspring.api.auth import Caller
from mainspring.api.context import Context
from mainspring.api.errors import guarded
from mainspring.codec import MAX_BODY, decode, encode
from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import Invalid, TooLarge, Unauthenticated

log = structlog.get_logger()
MAX_REASON = 1000


@dataclass(frozen=True, slots=True)
class Call:
    """One request, read and checked."""

    context: Context
    caller: Caller
    request: Request
    body: Any

    @property
    def tenant(self) -> int:
        return self.caller.tenant

    def making(self, schedules: bool) -> AbstractAsyncContextManager[None]:
        """Around what makes a schedule: a token has a quota of these."""
        return self.context.quotas.making(
            schedules, tenant=self.tenant, token_id=self.caller.token_id, own=self.caller.schedule_quota
        )

    def path(self, name: str) -> str:
        return str(self.request.path_params[name])

    def query(self, name: str) -> str | None:
        return self.request.query_params.get(name)

    def number(self, name: str, default: int) -> int:
        text = self.query(name)
        try:
            return default if text is None else int(text)
        except ValueError:
            raise bad_query(name, f"{text!r} is not a whole number") from None

    def seconds(self, name: str, default: float, most: float) -> float:
        text = self.query(name)
        try:
            return default if text is None else min(parse_duration(text), most)
        except ValueError as error:
            raise bad_query(name, str(error)) from None

    def instant(self, name: str) -> datetime | None:
        text = self.query(name)
        try:
            at = None if text is None else datetime.fromisoformat(text)
        except ValueError:
            raise bad_query(name, f"{text!r} is not an RFC 3339 instant such as 2026-12-01T09:00:00Z") from None
        if at is not None and at.tzinfo is None:
            raise bad_query(name, f"{text!r} has no offset; add Z for UTC")
        return at

    def detaches(self) -> bool:
        """Whether those that need what is deleted are to go on without it."""
        said = self.query("cascade")
        if said not in (None, "detach"):
            raise bad_query("cascade", f"{said!r} is not known; leave it out, or say detach")
        return said is not None

    def reason(self) -> str:
        """Why something is deleted: a DELETE has no body."""
        said = self.query("reason") or ""
        if len(said) > MAX_REASON:
            raise bad_query("reason", f"it is longer than {MAX_REASON} characters")
        return said


def bad_query(name: str, message: str) -> Invalid:
    return Invalid(f"{name}: {message}", code="bad_query")


@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: str
    scope: str
    handle: Callable[[Call], Awaitable[Any]]
    body: Any = None
    answer: Any = None
    status: int = 200
    query: tuple[str, ...] = ()
    limit: int = MAX_BODY
    summary: str = field(default="")


class Table:
    """Endpoints as they are declared, module by module."""

    def __init__(self) -> None:
        self.endpoints: list[Endpoint] = []

    def route(
        self,
        method: str,
        path: str,
        *,
        scope: str,
        body: Any = None,
        answer: Any = None,
        status: int = 200,
        query: tuple[str, ...] = (),
        limit: int = MAX_BODY,
    ) -> Callable[[Callable[[Call], Awaitable[Any]]], Callable[[Call], Awaitable[Any]]]:
        def declare(handle: Callable[[Call], Awaitable[Any]]) -> Callable[[Call], Awaitable[Any]]:
            summary = (handle.__doc__ or "").strip().partition("\n")[0]
            self.endpoints.append(Endpoint(method, path, scope, handle, body, answer, status, query, limit, summary))
            return handle

        return declare


def routes(endpoints: list[Endpoint], context: Context) -> list[Route]:
    return [Route(e.path, _endpoint(e, context), methods=[e.method]) for e in endpoints]


class Lanes:
    """In front of the table: a path with nothing to fill in is looked up, not found by trying one after another.

    A fleet of workers asks for three paths thousands of times a second, and finding them took half of each answer.
    """

    def __init__(self, application: ASGIApp, endpoints: list[Endpoint], context: Context) -> None:
        self._application = application
        self._lanes = {(e.method, e.path): _endpoint(e, context) for e in endpoints if "{" not in e.path}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        lane = self._lanes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if lane is None:
            await self._application(scope, receive, send)
        else:
            await (await lane(Request(scope, receive, send)))(scope, receive, send)


def _endpoint(endpoint: Endpoint, context: Context) -> Callable[[Request], Awaitable[Response]]:
    async def serve_it(request: Request) -> Response:
        return await guarded(lambda: serve(endpoint, context, request))

    return serve_it


async def serve(endpoint: Endpoint, context: Context, request: Request) -> Response:
    caller = await admitted(context, request, counted=endpoint.scope != "worker")
    if caller.csrf is not None and endpoint.method not in ("GET", "HEAD"):
        raise Invalid("browsers change things through the pages; use a token here", code="token_needed")
    caller.demand(endpoint.scope)
    if request.scope["query_string"] and (unknown := set(request.query_params) - set(endpoint.query)):
        known = f"known: {', '.join(endpoint.query)}" if endpoint.query else "none is known here"
        raise bad_query(sorted(unknown)[0], f"unknown query parameter; {known}")
    body = None
    if endpoint.body is not None:
        raw = await read_body(request, endpoint.limit)
        body = decode(raw or b"{}", endpoint.body, limit=endpoint.limit)
    answer = await endpoint.handle(Call(context, caller, request, body))
    if isinstance(answer, Response):
        return answer
    if answer is None:
        return Response(status_code=204)
    return Response(encode(answer), endpoint.status, media_type="application/json")


async def admitted(context: Context, request: Request, *, counted: bool = True) -> Caller:
    """Who asks, if not too often."""
    try:
        caller = await context.auth.caller(request)
    except Unauthenticated:
        if "authorization" in request.headers:  # each try of a token is looked up
            context.rates.admit_stranger(request.client.host if request.client is not None else "")
        raise
    if counted:
        context.rates.admit(caller.token_id)
    return caller


async def read_body(request: Request, limit: int) -> bytes:
    """Reads no more than the limit, whatever the sender claims."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > limit:
        raise TooLarge(f"the body has {int(declared):,} bytes; at most {limit:,} are accepted")
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise TooLarge(f"the body has more than {limit:,} bytes, which is the most accepted")
        chunks.append(chunk)
    return b"".join(chunks)
