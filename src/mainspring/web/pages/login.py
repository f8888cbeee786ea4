"""Sign in with a login link or a token, and sign out.

GET changes nothing: it shows a form that is tied to the browser by a cookie. A link is used up by submitting the form.
So a program that only opens links neither signs in nor uses them up, and another site can't sign a browser in.

Sign-in at an identity provider begins with that form, too. The browser leaves and comes back by pages instead of
redirects: the policy for forms would stop the way out, and cookies for this site only are not sent on the way back.
"""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mainspring.api.auth import COOKIE, COOKIE_S, LINK_S, Caller, client_address
from mainspring.api.context import Context
from mainspring.api.federated import CALLBACK, SIGN_IN_S, FederatedAuthenticator
from mainspring.api.refusals import note_failure, note_login
from mainspring.codec import encode
from mainspring.domain.errors import Forbidden, Invalid, TooLarge, TooMany, Unauthenticated, Unavailable
from mainspring.domain.issuer import Issuer
from mainspring.store import browser_sessions
from mainspring.store.db import AWAY
from mainspring.web import render
from mainspring.web.endpoint import Endpoint, PageRequest, check_origin, read_form
from mainspring.web.urls import local_path

NONCE_COOKIE = "mainspring_login"
SIGN_IN_COOKIE = "mainspring_sign_in"
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
            if request.headers.get("accept") == "application/json":
                return _methods(context)
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
        except Unavailable as error:
            return await _form(context, request, then=then, status=503, error=error.message)
        except AWAY:
            return await _form(context, request, then=then, status=503, error="the database is not reachable")

    return answer


def callback(context: Context) -> Endpoint:
    """GET /login/callback: where the identity provider sends the browser back to, with a code for the server."""

    async def answer(request: Request) -> Response:
        try:
            return await _finish_sign_in(context, request)
        except TooMany as error:
            return await _form(context, request, then="/", status=429, error=error.message)
        except (Unauthenticated, Forbidden) as error:
            status = 403 if isinstance(error, Forbidden) else 401
            return await _form(context, request, then="/", status=status, error=error.message)
        except Unavailable as error:
            return await _form(context, request, then="/", status=503, error=error.message)
        except AWAY:
            return await _form(context, request, then="/", status=503, error="the database is not reachable")

    return answer


def issuers_of(context: Context) -> list[Issuer]:
    """The identity providers that a browser or a command can sign in at."""
    auth = context.auth
    return [provider.issuer for provider in auth.providers] if isinstance(auth, FederatedAuthenticator) else []


def _methods(context: Context) -> Response:
    """The identity providers, for `mainspring login`: no secret is among this."""
    found = [
        {
            "name": issuer.name,
            "display_name": issuer.shown_name,
            "url": issuer.url,
            "client_id": issuer.device_client_id,
            "scopes": list(issuer.scopes),
        }
        for issuer in issuers_of(context)
        if issuer.device_client_id is not None
    ]
    return Response(encode({"issuers": found}), 200, render.HEADERS, media_type="application/json")


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
    issuers = [issuer for issuer in issuers_of(context) if issuer.client_id is not None]
    page = render.login_page(
        status=status, error=error, then=then, proof=proof, key=key, caller=caller, issuers=issuers
    )
    _set_cookie(request, page, NONCE_COOKIE, nonce, LINK_S, path="/login")
    return page


async def _sign_in(context: Context, request: Request) -> Response:
    check_origin(request)
    async with asyncio.timeout(FORM_S):
        form = await read_form(request, limit=MAX_LOGIN_BYTES)
    key, token = form.get("key", ""), form.get("token", "").strip()
    context.auth.check_login(request.cookies.get(NONCE_COOKIE, ""), key, form.get("proof", ""))
    if issuer := form.get("issuer"):
        return await _begin_sign_in(context, request, issuer, local_path(form.get("then", "")))
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


async def _begin_sign_in(context: Context, request: Request, issuer: str, then: str) -> Response:
    """Send the browser to an identity provider, with a cookie that it must bring back."""
    context.rates.admit_unauthenticated(client_address(request))
    auth = context.auth
    if not isinstance(auth, FederatedAuthenticator):
        raise Unauthenticated("this server has no identity provider")
    address, cookie = await auth.begin_sign_in(issuer, then)
    response = render.redirect_page(address)
    # Lax: the browser comes back from another site.
    _set_cookie(request, response, SIGN_IN_COOKIE, cookie, SIGN_IN_S, path=CALLBACK, strict=False)
    return response


async def _finish_sign_in(context: Context, request: Request) -> Response:
    address, auth, query = client_address(request), context.auth, request.query_params
    context.rates.admit_login(address, count=False)
    try:
        if not isinstance(auth, FederatedAuthenticator):
            raise Unauthenticated("this server has no identity provider")
        cookie, then = await auth.finish_sign_in(
            request.cookies.get(SIGN_IN_COOKIE, ""),
            query.get("state", ""),
            query.get("code", ""),
            issuer=query.get("iss", ""),
            address=address,
            user_agent=request.headers.get("user-agent", ""),
        )
        caller = await auth.caller_of_cookie(cookie, address)
    except (Unauthenticated, Forbidden):
        note_failure(context, request)
        context.rates.admit_login(address)
        raise
    note_login(context, caller, request, "browser_session.begin")
    await _end_session_of(context, request)
    response = render.redirect_page(local_path(then))
    _set_cookie(request, response, COOKIE, cookie, COOKIE_S, path="/")
    response.delete_cookie(SIGN_IN_COOKIE, path=CALLBACK, httponly=True, samesite="lax")
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


def _set_cookie(
    request: Request, response: Response, name: str, value: str, seconds: int, *, path: str, strict: bool = True
) -> None:
    response.set_cookie(
        name,
        value,
        max_age=seconds,
        path=path,
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict" if strict else "lax",
    )
