"""The route table: the scope, request type and response type of each endpoint.

Every endpoint goes through `serve`: authenticate, check the scope, decode the body, call the endpoint, encode.
There is no other way in, so no endpoint can be public by accident. OpenAPI is generated from the same table.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from mainspring.api import idempotency
from mainspring.api.auth import Caller, header
from mainspring.api.context import Context
from mainspring.api.errors import guarded
from mainspring.api.problem import SAFE_HEADERS
from mainspring.api.read_cache import SEEN_AFTER, WRITTEN, CachedRead, Encoded, Key, Label
from mainspring.api.refusals import REQUEST_ID, denials_noted, failures_noted, origin_recorded
from mainspring.api.safe_headers import add_safe_headers
from mainspring.api.tls import require_client_certificate
from mainspring.codec import MAX_BODY, decode, encode
from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import Invalid, TooLarge
from mainspring.domain.roles import CLUSTER_SCOPE
from mainspring.domain.trace import read_traceparent
from mainspring.store.replica import READ_FAILED, Replica
from mainspring.store.request_keys import RequestKey
from mainspring.telemetry import metrics

log = structlog.get_logger()
S = TypeVar("S")
MAX_REASON = 1000
MAX_LENGTH_DIGITS = 18
MAX_NUMBER = 2**31 - 1
FOR_ALL_TENANTS = ("worker", CLUSTER_SCOPE)
"""Scopes of endpoints whose database connection is not bound to the caller's tenant: of workers, which belong to the
engine, and of the administration of tenants."""
NUMBER = re.compile(r"[+-]?+\d{1,18}+", re.ASCII)
JSON = (b"content-type", b"application/json")
RATE_LIMIT = "mainspring.rate_limit"
"""Where `authenticate` leaves the headers about the caller's rate limit, for responses of every status."""


@dataclass(frozen=True, slots=True)
class Call:
    """One authenticated request with its decoded body."""

    context: Context
    caller: Caller
    request: Request
    body: Any

    @property
    def tenant(self) -> int:
        return self.caller.tenant

    def path(self, name: str) -> str:
        return str(self.request.path_params[name])

    def header(self, name: str) -> str | None:
        return header(self.request.scope, name.encode())

    def query(self, name: str) -> str | None:
        return self.request.query_params.get(name)

    def asks(self, *names: str) -> bool:
        """Whether the query has one of these parameters."""
        return any(name in self.request.query_params for name in names)

    def number(self, name: str, default: int, *, most: int = MAX_NUMBER) -> int:
        text = self.query(name)
        if text is None:
            return default
        if not NUMBER.fullmatch(text):
            shown = text if len(text) <= 40 else f"{text[:40]}…"
            raise bad_query(name, f"{shown!r} is not a whole number")
        if abs(number := int(text)) > most:
            raise bad_query(name, f"{number} is out of range: at most {most:,}")
        return number

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
            raise bad_query(name, f"{text!r} has no UTC offset; add Z for UTC")
        return at

    async def submitting(self, submission: Awaitable[S], ids: Callable[[S], Collection[UUID]]) -> S:
        """Await a submission and record its span, below the one that the caller's `traceparent` names."""
        spans = self.context.spans
        if spans is None:
            return await submission
        since_ms = spans.now_ms()
        found = await submission
        spans.submitted(ids(found), since_ms=since_ms, parent=read_traceparent(self.header("traceparent")))
        return found

    def detaches(self) -> bool:
        """Whether a deletion also removes the dependencies of other jobs on the deleted one."""
        cascade = self.query("cascade")
        if cascade not in (None, "detach"):
            raise bad_query("cascade", f"unknown value {cascade!r}; omit it or use `detach`")
        return cascade is not None

    def allow_long_body(self) -> None:
        """Exempt the body from the deadline of a request: it is a stream or an upload."""
        if (connection := self.request.scope.get("connection")) is not None:
            connection.allow_long_body()

    def reason(self) -> str:
        """The reason for a deletion; a query parameter, because DELETE has no body."""
        reason = self.query("reason") or ""
        if len(reason) > MAX_REASON:
            raise bad_query("reason", f"longer than {MAX_REASON} characters")
        return reason


class JsonResponse(Response):
    """A JSON body with headers written out; Starlette's response computes the same ones each time."""

    def __init__(self, body: bytes, status: int = 200, *headers: tuple[bytes, bytes]) -> None:
        self.body = body
        self.status_code = status
        self.raw_headers = [(b"content-length", b"%d" % len(body)), JSON, *SAFE_HEADERS, *headers]
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body})


def bad_query(name: str, message: str) -> Invalid:
    return Invalid(f"{name}: {message}", code="bad_query")


Changes = Callable[[Call], Iterable[Label]]
UNCACHED = ("wait", "cursor")
"""Query parameters whose responses are not cached: of long polls, and of pages after the first."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: str
    scope: str
    handle: Callable[[Call], Awaitable[Any]]
    body: Any = None
    response: Any = None
    status: int = 200
    query: tuple[str, ...] = ()
    limit: int = MAX_BODY
    summary: str = ""
    description: str = ""
    cached: CachedRead | None = None
    changes: Changes | None = None
    creates: bool = False
    checks_grants: bool = False
    replica: bool = False


class Table:
    """The endpoints of one module, in the order of declaration."""

    def __init__(self) -> None:
        self.endpoints: list[Endpoint] = []

    def route(
        self,
        method: str,
        path: str,
        *,
        scope: str,
        body: Any = None,
        response: Any = None,
        status: int = 200,
        query: tuple[str, ...] = (),
        limit: int = MAX_BODY,
        cached: CachedRead | None = None,
        changes: Changes | None = None,
        creates: bool = False,
        checks_grants: bool = False,
        replica: bool = False,
    ) -> Callable[[Callable[[Call], Awaitable[Any]]], Callable[[Call], Awaitable[Any]]]:
        """Declare an endpoint.

        With `cached`, its responses are kept for a second. `changes` names what a write changes; without it, a write
        removes all cached responses of its tenant. With `creates`, an `Idempotency-Key` makes repeats safe: everything
        that the endpoint writes must go through the context of its call. `checks_grants`: a change that tokens may make
        that are restricted to queues or labels, because it checks these grants; others refuse such tokens. `replica`: a
        read that may show data a few seconds old.
        """

        def declare(handle: Callable[[Call], Awaitable[Any]]) -> Callable[[Call], Awaitable[Any]]:
            summary, _, description = (inspect.getdoc(handle) or "").partition("\n")
            self.endpoints.append(
                Endpoint(
                    method,
                    path,
                    scope,
                    handle,
                    body,
                    response,
                    status,
                    query,
                    limit,
                    summary,
                    description.strip(),
                    cached,
                    changes,
                    creates,
                    checks_grants or method == "GET" or scope in ("read", "worker"),
                    replica,
                )
            )
            return handle

        return declare


def routes(endpoints: list[Endpoint], context: Context) -> list[Route]:
    return [Route(e.path, responder(e, context), methods=[e.method]) for e in endpoints]


def responder(endpoint: Endpoint, context: Context) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        with origin_recorded(request) as origin:
            response = await guarded(lambda: serve(endpoint, context, request))
        if not isinstance(response, JsonResponse):
            add_safe_headers(response.raw_headers)
        if origin.known_id is not None:
            response.raw_headers.append((REQUEST_ID, origin.known_id.encode()))
        response.raw_headers.extend(request.scope.get(RATE_LIMIT, ()))
        return response

    return respond


async def serve(endpoint: Endpoint, context: Context, request: Request) -> Response:
    caller = await authenticate(context, request, counted=endpoint.scope != "worker")
    with denials_noted(context, caller, request, f"{endpoint.method} {endpoint.path}"):
        return await _served(endpoint, context, request, caller)


async def _served(endpoint: Endpoint, context: Context, request: Request, caller: Caller) -> Response:
    if caller.csrf is not None and endpoint.method not in ("GET", "HEAD"):
        raise Invalid("a browser session cannot call this route; send an API token", code="token_needed")
    caller.demand(endpoint.scope)
    if not endpoint.checks_grants:
        caller.demand_unrestricted()
    if endpoint.scope == "worker" and context.needs_client_certificate:
        require_client_certificate(request)
    refuse_nul(request)
    if request.scope["query_string"] and (unknown := set(request.query_params) - set(endpoint.query)):
        known = f"known: {', '.join(endpoint.query)}" if endpoint.query else "this route has none"
        raise bad_query(sorted(unknown)[0], f"unknown query parameter; {known}")
    body = None
    if endpoint.body is not None:
        raw = await read_body(request, endpoint.limit)
        body = decode(raw or b"{}", endpoint.body, limit=endpoint.limit, large_integers=endpoint.scope == "worker")
    call = Call(context_for(context, endpoint.scope, caller.tenant), caller, request, body)
    if endpoint.replica and context.replica is not None:
        return await _read_somewhere(endpoint, call, context.replica)
    return await _answered(endpoint, call)


async def _read_somewhere(endpoint: Endpoint, call: Call, replica: Replica) -> Response:
    """Read from the replica if it has what the caller wrote; from the primary if not, or if the replica fails."""
    if not replica.may_serve(writer_of(call.caller), seen_after=call.header(SEEN_AFTER.decode())):
        metrics.READS.labels("primary").inc()
        return await _answered(endpoint, call)
    context = call.context.on_replica(replica, call.tenant)
    try:
        response = await _answered(endpoint, replace(call, context=context), as_of=replica.caught_up)
    except READ_FAILED as error:
        replica.failed(error)
        metrics.READS.labels("retried").inc()
        return await _answered(endpoint, call)
    metrics.READS.labels("replica").inc()
    return response


def writer_of(caller: Caller) -> UUID:
    """Whose writes a reader must see: those of its user, or of its token."""
    return caller.principal_id or caller.token_id


async def _answered(endpoint: Endpoint, call: Call, *, as_of: float | None = None) -> Response:
    request = call.request
    if endpoint.cached is not None and not (request.scope["query_string"] and call.asks(*UNCACHED)):
        return await _read(endpoint, endpoint.cached, call, as_of=as_of)
    if endpoint.method == "GET" or endpoint.scope == "worker":
        return _response(endpoint, await endpoint.handle(call))
    return await _write(endpoint, call)


def context_for(context: Context, scope: str, tenant: int) -> Context:
    """Return the context of a request: bound to the tenant of its caller, except for work on all tenants."""
    return context if scope in FOR_ALL_TENANTS else context.of(tenant)


def refuse_nul(request: Request) -> None:
    """Refuse an address with a NUL character, which PostgreSQL cannot look up."""
    if b"%00" in request.scope["query_string"] or "\0" in request.scope["path"]:
        raise Invalid("an address cannot contain a NUL character", code="bad_query")


def _response(endpoint: Endpoint, result: Any) -> Response:
    if isinstance(result, Response):
        return result
    if result is None:
        return Response(status_code=204)
    return JsonResponse(encode(result), endpoint.status)


async def _read(endpoint: Endpoint, cached: CachedRead, call: Call, *, as_of: float | None) -> Response:
    scope = call.request.scope
    key = Key(call.tenant, f"{scope['path']}?{scope['query_string'].decode('latin-1')}", as_of)

    async def load() -> tuple[Encoded, Iterable[Label]]:
        found = await endpoint.handle(call)
        return Encoded(encode(found), cached.headers(found)), cached.labels(key, found)

    seen_after = header(scope, SEEN_AFTER)
    found = await call.context.reads.get(key, load, seen_after=seen_after, kind=cached.kind)
    return JsonResponse(found.body, endpoint.status, *found.headers)


async def _write(endpoint: Endpoint, call: Call) -> Response:
    labels = None
    key = call.header("idempotency-key") if endpoint.creates else None
    try:
        response = await (_handled(endpoint, call) if key is None else _handled_once(endpoint, call, key))
        labels = None if endpoint.changes is None else endpoint.changes(call)
    finally:  # also after an error: it may have come after the commit
        written = call.context.reads.wrote(call.tenant, labels)
        if call.context.replica is not None:
            call.context.replica.wrote(writer_of(call.caller))
    response.raw_headers.append((WRITTEN, written.encode()))
    return response


async def _handled(endpoint: Endpoint, call: Call) -> Response:
    return _response(endpoint, await endpoint.handle(call))


async def _handled_once(endpoint: Endpoint, call: Call, key: str) -> Response:
    idempotency.check_key(key)
    scope = call.request.scope
    request = idempotency.KeyedRequest(
        RequestKey(
            call.caller.token_id,
            idempotency.digest_of(endpoint.method.encode(), scope["path"].encode(), key.encode()),
        ),
        call.tenant,
        idempotency.digest_of(scope["query_string"], idempotency.body_bytes(call.body)),
        call.caller.response_key or (header(scope, b"authorization") or "").partition(" ")[2].strip().encode(),
    )
    status, body, headers = await idempotency.once(
        call.context, request, lambda context: _handled(endpoint, replace(call, context=context))
    )
    return JsonResponse(body, status, *headers)


async def authenticate(context: Context, request: Request, *, counted: bool = True) -> Caller:
    """Return the caller within its rate limit.

    `counted=False` is for workers: they are exempt from the limit, and report what runs of a suspended tenant.
    """
    with failures_noted(context, request):
        caller = await context.auth.caller(request)
    if (connection := request.scope.get("connection")) is not None:
        connection.admit()
    if counted:
        with denials_noted(context, caller, request):
            caller.demand_active()
        person_id = caller.name.person_id
        user = None if person_id == caller.token_id else person_id
        admission = await context.rates.count(caller.token_id, user=user, tenant=caller.tenant)
        request.scope[RATE_LIMIT] = admission.headers
        if admission.refusal is not None:
            raise admission.refusal
    return caller


async def read_body(request: Request, limit: int) -> bytes:
    """Read the body; reject it as soon as more than `limit` bytes have arrived, whatever Content-Length says."""
    declared = header(request.scope, b"content-length") or "0"
    if declared.isdecimal() and (len(declared) > MAX_LENGTH_DIGITS or int(declared) > limit):
        raise TooLarge(f"request body has {int(declared[:MAX_LENGTH_DIGITS]):,} bytes; the limit is {limit:,}")
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise TooLarge(f"request body exceeds the limit of {limit:,} bytes")
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)
