"""The one way in: every page and every change passes here, so none can forget to ask who calls."""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote
from uuid import uuid4

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from mainspring.api.auth import Caller
from mainspring.api.context import Context
from mainspring.api.problem import TITLES, status_of
from mainspring.api.route import authenticate
from mainspring.domain.errors import Forbidden, MainspringError, TooLarge, Unauthenticated, Unavailable, invalid
from mainspring.store.db import AWAY
from mainspring.web import render

log = structlog.get_logger()

MAX_FORM = 256_000
MAX_FIELDS = 500
"""A job has some sixty fields, and rows of notices and params."""
_NOBODY: tuple[type[BaseException], ...] = (MainspringError, *AWAY)
"""Whoever asks can't be found out, so the answer is plain text."""
_OWN_PATH = re.compile(r"/(?![/\\])[\w./~?=&%+:@,-]*\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of someone we know."""

    context: Context
    request: Request
    caller: Caller
    form: dict[str, str] = field(default_factory=dict)

    def making(self, schedules: bool) -> AbstractAsyncContextManager[None]:
        """Around what makes a schedule: a token has a quota of these."""
        return self.context.quotas.making(
            schedules, tenant=self.caller.tenant, token_id=self.caller.token_id, own=self.caller.schedule_quota
        )

    def query(self, name: str) -> str:
        return self.request.query_params.get(name, "").strip()

    @property
    def ref(self) -> str:
        return str(self.request.path_params["ref"])


Handle = Callable[[Visit], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]


def reading(context: Context, handle: Handle, scope: str = "read") -> Endpoint:
    """For GET: needs the right to read, changes nothing."""

    async def enter(request: Request) -> Response:
        caller = await authenticate(context, request)
        caller.demand(scope)
        return await handle(Visit(context, request, caller))

    return _answering(context, enter)


def changing(context: Context, handle: Handle, scope: str = "write") -> Endpoint:
    """For POST: needs the right to write, a form from our own pages, and its token."""

    async def enter(request: Request) -> Response:
        caller = await authenticate(context, request)
        caller.demand(scope)
        check_origin(request)
        form = await read_form(request)
        if caller.csrf is None:
            raise Forbidden("pages are for browsers; programs change things through /api/v1")
        if not hmac.compare_digest(form.get("csrf", "").encode(), caller.csrf.encode()):
            raise Forbidden("this form is not from your session; reload the page and try again")
        return await handle(Visit(context, request, caller, form))

    return _answering(context, enter)


def check_origin(request: Request) -> None:
    """A change must come from a page of ours: browsers say where a form comes from."""
    site = request.headers.get("sec-fetch-site")
    if site is None:  # not sent over plain http to other machines
        own = request.headers.get("origin") in {f"{s}://{request.headers.get('host')}" for s in ("http", "https")}
    else:
        own = site in ("same-origin", "none")
    if not own:
        raise Forbidden("this request does not come from a page of this server")


async def read_form(request: Request) -> dict[str, str]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM:
            raise TooLarge(f"the form has more than {MAX_FORM:,} bytes")
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MAX_FIELDS))


def refuse_nul(form: Mapping[str, str]) -> None:
    """PostgreSQL can't store it; definitions refuse it with a pointer, short texts are refused here."""
    for name, value in form.items():
        if "\0" in value:
            raise invalid(f"/{name}", "text cannot contain a NUL character", hint="remove it")


def own_path(text: str, default: str = "/") -> str:
    """A path on this server, or the default: nobody is sent elsewhere by a link they were given."""
    return text if _OWN_PATH.match(text) else default


def _answering(context: Context, enter: Endpoint) -> Endpoint:
    async def answer(request: Request) -> Response:
        try:
            return await enter(request)
        except Unauthenticated as error:
            return _ask_to_log_in(request, error)
        except MainspringError as error:
            return await _error_page(context, request, error)
        except AWAY:
            away = Unavailable("the database does not answer right now; nothing was changed, try again in a moment")
            return await _error_page(context, request, away)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:
            # Told by a name that the log has too, so that whoever sees the page and whoever reads the log can meet.
            fault = uuid4().hex[:12]
            log.exception("a page failed", request=fault, path=request.url.path)
            ours = MainspringError(f"something went wrong on our side; the server's log has it as request {fault}")
            return await _error_page(context, request, ours)

    return answer


def _ask_to_log_in(request: Request, error: Unauthenticated) -> Response:
    if "text/html" not in request.headers.get("accept", ""):
        return PlainTextResponse(error.message + "\n", 401, render.HEADERS)
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    if request.method == "GET" and request.headers.get("sec-fetch-site") == "cross-site":
        # Followed from elsewhere, the link did not bring the Strict cookie: one step of our own does.
        return render.onward_page(own_path(here), status=401)
    then = f"?then={quote(here)}" if request.method == "GET" and here != "/" else ""
    return RedirectResponse(f"/login{then}", 303, render.HEADERS)


async def lost(context: Context, request: Request, status: int, message: str) -> Response:
    """What a browser gets where there is no page: a way back, or the login."""
    try:
        caller = await context.auth.caller(request)
    except Unauthenticated as error:
        return _ask_to_log_in(request, error)
    except _NOBODY:
        return PlainTextResponse(message + "\n", status, render.HEADERS)
    title = TITLES.get(status, "Error")
    return render.page(
        "error.html", caller, status=status, code=status, title=title, message=message, hints=[], path=request.url.path
    )


async def _error_page(context: Context, request: Request, error: MainspringError) -> Response:
    status = status_of(error)
    try:
        caller = await context.auth.caller(request)
    except _NOBODY:
        return PlainTextResponse(error.message + "\n", status, render.HEADERS)
    hints = [p.hint for p in error.problems if p.hint]
    return render.page(
        "error.html",
        caller,
        status=status,
        code=status,
        title=TITLES.get(status, "Error"),
        message=error.message,
        hints=hints,
        path=request.url.path,
    )
