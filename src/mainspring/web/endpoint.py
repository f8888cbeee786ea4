"""Wrap page handlers as endpoints: authentication, scope and CSRF checks, error pages.

Every page and every form except the login passes through `reading` or `changing`, so no handler can skip the checks.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote
from uuid import uuid4

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from mainspring.api.context import Context
from mainspring.api.problem import TITLES, retry_headers, status_of
from mainspring.api.refusals import denials_noted, origin_recorded
from mainspring.api.route import authenticate, context_for, writer_of
from mainspring.api.route import refuse_nul as refuse_nul_in_address
from mainspring.domain.errors import (
    MAX_LISTED,
    Forbidden,
    MainspringError,
    TooLarge,
    Unauthenticated,
    Unavailable,
    invalid,
)
from mainspring.store.db import AWAY
from mainspring.web import render
from mainspring.web.reader import Reader, as_reader, blackout_now
from mainspring.web.urls import local_path

log = structlog.get_logger()

MAX_FORM_BYTES = 256_000
MAX_FIELDS = 500
"""A job has some sixty fields, plus rows of notifications and parameters."""
_CALLER_UNKNOWN: tuple[type[BaseException], ...] = (MainspringError, *AWAY)
"""Errors while looking up the caller: the response is plain text, because a page needs a caller."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """An authenticated request. `form` is empty for GET."""

    context: Context
    http: Request
    caller: Reader
    form: dict[str, str] = field(default_factory=dict)

    def query(self, name: str) -> str:
        return self.http.query_params.get(name, "").strip()

    @property
    def ref(self) -> str:
        return str(self.http.path_params["ref"])


Handle = Callable[[PageRequest], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]


def reading(
    context: Context,
    handle: Handle,
    scope: str = "read",
    accepts: Collection[str] | None = None,
    *,
    banner: bool = False,
) -> Endpoint:
    """Wrap a GET handler: the caller needs `scope`. With `accepts`, other query parameters are refused."""

    async def enter(request: Request) -> Response:
        caller = await authenticate(context, request)
        with denials_noted(context, caller, request):
            caller.demand(scope)
            refuse_nul_in_address(request)
            if accepts is not None:
                refuse_unknown_query(request, accepts)
            own = context_for(context, scope, caller.tenant)
            blackout = await blackout_now(own.database, tenant=caller.tenant) if banner else None
            return await handle(PageRequest(own, request, as_reader(caller, request, blackout)))

    return _answering(context, enter)


def changing(context: Context, handle: Handle, scope: str = "write", *, checks_grants: bool = False) -> Endpoint:
    """Wrap a POST handler: the caller needs `scope`, and the form must carry the CSRF token of its session.

    A token that is restricted to queues or labels is refused, unless the handler checks that.
    """

    async def enter(request: Request) -> Response:
        caller = as_reader(await authenticate(context, request), request)
        with denials_noted(context, caller, request):
            caller.demand(scope)
            if scope != "read" and not checks_grants:
                caller.demand_unrestricted()
            refuse_nul_in_address(request)
            check_origin(request)
            form = await read_form(request)
            check_csrf(caller, form)
            try:
                return await handle(PageRequest(context_for(context, scope, caller.tenant), request, caller, form))
            finally:
                context.reads.wrote(caller.tenant, None)
                if context.replica is not None:
                    context.replica.wrote(writer_of(caller))

    return _answering(context, enter)


def check_csrf(caller: Reader, form: Mapping[str, str]) -> None:
    """Refuse a form that does not carry the CSRF token of its session."""
    if caller.csrf is None:
        raise Forbidden("forms need a browser session; use /api/v1 with a token instead")
    if not hmac.compare_digest(form.get("csrf", "").encode(), caller.csrf.encode()):
        raise Forbidden("the form's CSRF token does not match your session; reload the page and try again")


def refuse_unknown_query(request: Request, accepts: Collection[str]) -> None:
    """Refuse a query parameter that the page ignores: it may be the one that narrows what an action applies to.

    A name that ends with `*` accepts every parameter with that prefix.
    """
    prefixes = tuple(name[:-1] for name in accepts if name.endswith("*"))
    for name in request.query_params:
        if name not in accepts and not (prefixes and name.startswith(prefixes)):
            known = ", ".join(sorted(accepts)) or "none"
            raise invalid(f"/{name[:80]}", f"unknown query parameter {name[:80]!r}", hint=f"known: {known}")


def check_origin(request: Request) -> None:
    """Refuse a form that was not sent from a page of this server."""
    site = request.headers.get("sec-fetch-site")
    if site is None:  # not sent over plain http to other machines
        own = request.headers.get("origin") in {f"{s}://{request.headers.get('host')}" for s in ("http", "https")}
    else:
        own = site in ("same-origin", "none")
    if not own:
        raise Forbidden("cross-site request refused: the form must be sent from a page of this server")


async def read_form(request: Request, *, limit: int = MAX_FORM_BYTES) -> dict[str, str]:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise TooLarge(f"the form is larger than {limit:,} bytes")
    return form_fields(bytes(body))


def form_fields(body: bytes) -> dict[str, str]:
    """Return the fields of a form by name; the last of several with the same name counts."""
    if (count := body.count(b"&") + 1) > MAX_FIELDS:
        raise TooLarge(f"the form has {count:,} fields; the limit is {MAX_FIELDS:,}", code="too_many_fields")
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


def refuse_nul(form: Mapping[str, str]) -> None:
    """Refuse NUL characters, which PostgreSQL can't store. Definitions are checked elsewhere, with a pointer."""
    for name, value in form.items():
        if "\0" in value:
            raise invalid(f"/{name}", "text cannot contain a NUL character", hint="remove it")


def _answering(context: Context, enter: Endpoint) -> Endpoint:
    async def answer(request: Request) -> Response:
        try:
            with origin_recorded(request):
                return await enter(request)
        except Unauthenticated as error:
            return _ask_to_log_in(request, error)
        except MainspringError as error:
            return await _error_page(context, request, error)
        except AWAY:
            away = Unavailable("the database is not reachable; nothing was changed, try again in a moment")
            return await _error_page(context, request, away)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:
            # The page and the log carry the same id, so that a report can be matched with its traceback.
            error_id = uuid4().hex[:12]
            log.exception("page.failed", request=error_id, path=request.url.path)
            internal = MainspringError(f"internal error; find it in the server's log as request {error_id}")
            return await _error_page(context, request, internal)

    return answer


def _ask_to_log_in(request: Request, error: Unauthenticated) -> Response:
    if "text/html" not in request.headers.get("accept", ""):
        return PlainTextResponse(error.message + "\n", 401, render.HEADERS)
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    if request.method == "GET" and request.headers.get("sec-fetch-site") == "cross-site":
        # A link followed from another site does not carry the SameSite=Strict cookie; a same-site reload does.
        return render.redirect_page(local_path(here), status=401)
    then = f"?then={quote(here)}" if request.method == "GET" and here != "/" else ""
    return RedirectResponse(f"/login{then}", 303, render.HEADERS)


async def not_found_page(context: Context, request: Request, status: int, message: str) -> Response:
    """Answer a browser where no route matches: an error page with links, or the login."""
    try:
        caller = as_reader(await context.auth.caller(request), request)
    except Unauthenticated as error:
        return _ask_to_log_in(request, error)
    except _CALLER_UNKNOWN:
        return PlainTextResponse(message + "\n", status, render.HEADERS)
    return _render_error(caller, request, status, message, [])


async def _error_page(context: Context, request: Request, error: MainspringError) -> Response:
    status = status_of(error)
    try:
        caller = as_reader(await context.auth.caller(request), request)
    except _CALLER_UNKNOWN:
        return PlainTextResponse(error.message + "\n", status, {**render.HEADERS, **retry_headers(error)})
    response = _render_error(caller, request, status, error.message, _details(error))
    response.headers.update(retry_headers(error))
    return response


def _details(error: MainspringError) -> list[str]:
    """Pointer, message and hint of each problem, without what the message says."""
    listed = error.problems[:MAX_LISTED]
    found = [": ".join(filter(None, (p.pointer, p.hint))) if p.message == error.message else str(p) for p in listed]
    return [text for text in found if text and text not in error.message]


def _render_error(caller: Reader, request: Request, status: int, message: str, hints: list[str]) -> Response:
    title = TITLES.get(status, "Error")
    return render.page(
        "error.html", caller, status=status, code=status, title=title, message=message, hints=hints,
        path=request.url.path,
    )  # fmt: skip
