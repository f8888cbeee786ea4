"""Sign in with a login link or a token, and sign out.

GET changes nothing: it shows a form that is tied to the browser by a cookie. A link is used up by submitting the form.
So a program that only opens links neither signs in nor uses them up, and another site can't sign a browser in.
"""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mainspring.api.auth import COOKIE, COOKIE_S, LINK_S, Caller, client_address
from mainspring.api.context import Context
from mainspring.api.refusals import note_failure, note_login
from mainspring.domain.errors import Forbidden, Invalid, TooLarge, TooMany, Unauthenticated
from mainspring.store import browser_sessions
from mainspring.store.db import AWAY
from mainspring.web import render
from mainspring.web.endpoint import Endpoint, PageRequest, check_origin, read_form
from mainspring.web.urls import local_path

NONCE_COOKIE = "mainspring_login"
MAX_LOGIN_BYTES = 8_192
MAX_KEY_CHARS = 500
FORM_S = 10.0


def login(context: Context) -> Endpoint:
    """GET shows the form, or who a login link signs in; POST accepts a token or the key of a link."""

    async def answer(request: Request) -> Response:
        then = local_path(request.query_params.get("then", ""))
        key = request.query_params.get("k", "") if request.method != "POST" else ""
        try:
            if request.method == "POST":
                return await _sign_in(context, request)
            return await _form(context, request, then=then, key=key[:MAX_KEY_CHARS])
        except TooMany as error:
            refused = await _form(context, request, then=then, status=429, error=error.message)
            refused.headers["Retry-After"] = str(max(1, round(error.retry_after_s)))
            return refused
        except Unauthenticated as error:
            return await _form(context, request, then=then, status=401, error=error.message)
        except TimeoutError:
            return await _form(context, request, then=then, status=408, error="the form did not arrive in time")
        except (Forbidden, TooLarge, Invalid) as error:
            status = 403 if isinstance(error, Forbidden) else 413
            return await _form(context, request, then=then, status=status, error=error.message)
        except AWAY:
            return await _form(context, request, then=then, status=503, error="the database is not reachable")

    return answer


async def _form(
    context: Context, request: Request, *, then: str, status: int = 200, error: str = "", key: str = ""
) -> Response:
    """The login form; for a link with its token. The browser keeps the nonce of its form."""
    caller: Caller | None = None
    if key:
        context.rates.admit_login(client_address(request), count=False)
        try:
            caller = await context.auth.caller_of_link(key)
        except Unauthenticated:
            note_failure(context, request)
            context.rates.admit_login(client_address(request))
            raise
    nonce = context.auth.new_login_nonce()
    proof = context.auth.login_proof(nonce, key)
    page = render.login_page(status=status, error=error, then=then, proof=proof, key=key, caller=caller)
    _set_cookie(request, page, NONCE_COOKIE, nonce, LINK_S, path="/login")
    return page


async def _sign_in(context: Context, request: Request) -> Response:
    check_origin(request)
    async with asyncio.timeout(FORM_S):
        form = await read_form(request, limit=MAX_LOGIN_BYTES)
    key, token = form.get("key", ""), form.get("token", "").strip()
    context.auth.check_login(request.cookies.get(NONCE_COOKIE, ""), key, form.get("proof", ""))
    address = client_address(request)
    agent = request.headers.get("user-agent", "")
    if key or not context.auth.is_familiar(token):
        context.rates.admit_login(address, count=False)
    try:
        if key:
            cookie = await context.auth.cookie_for_link(key, address=address, user_agent=agent)
        else:
            cookie = await context.auth.cookie_for_token(token, address=address, user_agent=agent)
        caller = await context.auth.caller_of_cookie(cookie, address)
    except Unauthenticated:
        note_failure(context, request)
        context.rates.admit_login(address)
        raise
    note_login(context, caller, request, "browser_session.begin")
    await _end_session_of(context, request)
    response = RedirectResponse(local_path(form.get("then", "")), 303, render.HEADERS)
    _set_cookie(request, response, COOKIE, cookie, COOKIE_S, path="/")
    response.delete_cookie(NONCE_COOKIE, path="/login", httponly=True, samesite="strict")
    return response


async def _end_session_of(context: Context, request: Request) -> None:
    """End the session that the browser had before: its cookie is about to be replaced."""
    if COOKIE not in request.cookies:
        return
    try:
        caller = await context.auth.caller(request)
    except (Unauthenticated, TooMany):
        return
    await end_session(context, caller)


async def end_session(context: Context, caller: Caller) -> None:
    if caller.session_id is None:
        return
    async with context.database.connection() as connection:
        await browser_sessions.end_browser_session(connection, tenant=caller.tenant, session_id=caller.session_id)
    context.streams.announce_end(caller.session_id)


async def logout(request: PageRequest) -> Response:
    """POST /logout: ends the session on the server, so that a copy of its cookie is worth nothing."""
    await end_session(request.context, request.caller)
    note_login(request.context, request.caller, request.http, "browser_session.end")
    response = RedirectResponse("/login", 303, render.HEADERS)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return response


def _set_cookie(request: Request, response: Response, name: str, value: str, seconds: int, *, path: str) -> None:
    response.set_cookie(
        name,
        value,
        max_age=seconds,
        path=path,
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
