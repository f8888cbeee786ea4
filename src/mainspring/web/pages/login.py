"""Sign in with a login link or a token, and sign out."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mainspring.api.auth import COOKIE, COOKIE_S
from mainspring.api.context import Context
from mainspring.domain.errors import Forbidden, TooLarge, Unauthenticated
from mainspring.store.db import AWAY
from mainspring.web import render
from mainspring.web.endpoint import Endpoint, PageRequest, check_origin, read_form
from mainspring.web.urls import local_path


def login(context: Context) -> Endpoint:
    """GET shows the form, or accepts the key of a login link; POST accepts a token."""

    async def answer(request: Request) -> Response:
        then = local_path(request.query_params.get("then", ""))
        try:
            if request.method == "POST":
                check_origin(request)
                form = await read_form(request)
                then = local_path(form.get("then", ""))
                cookie = await context.auth.cookie_for_token(form.get("token", "").strip())
                return _with_cookie(request, RedirectResponse(then, 303, render.HEADERS), cookie)
            if key := request.query_params.get("k"):
                cookie = await context.auth.cookie_for_key(key)
                return _with_cookie(request, render.redirect_page(then), cookie)
        except (Unauthenticated, ValueError) as error:
            text = error.message if isinstance(error, Unauthenticated) else "invalid login link"
            return render.login_page(status=401, error=text, then=then)
        except (Forbidden, TooLarge) as error:
            return render.login_page(status=403, error=error.message, then=then)
        except AWAY:
            return render.login_page(status=503, error="the database is not reachable", then=then)
        return render.login_page(then=then)

    return answer


async def logout(request: PageRequest) -> Response:
    """POST /logout."""
    response = RedirectResponse("/login", 303, render.HEADERS)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return response


def _with_cookie(request: Request, response: Response, cookie: str) -> Response:
    response.set_cookie(
        COOKIE,
        cookie,
        max_age=COOKIE_S,
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response
