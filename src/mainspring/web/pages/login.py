"""Signing a browser in, by a link or by a token, and out."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mainspring.api.auth import COOKIE, COOKIE_S
from mainspring.api.context import Context
from mainspring.domain.errors import Forbidden, TooLarge, Unauthenticated
from mainspring.store.db import AWAY
from mainspring.web import render
from mainspring.web.access import Endpoint, Visit, check_origin, own_path, read_form


def login(context: Context) -> Endpoint:
    """GET shows the form, or takes the key of a link; POST takes a token."""

    async def answer(request: Request) -> Response:
        then = own_path(request.query_params.get("then", ""))
        try:
            if request.method == "POST":
                check_origin(request)
                form = await read_form(request)
                then = own_path(form.get("then", ""))
                cookie = await context.auth.cookie_for_token(form.get("token", "").strip())
                return _with_cookie(request, RedirectResponse(then, 303, render.HEADERS), cookie)
            if key := request.query_params.get("k"):
                cookie = await context.auth.cookie_for_key(key)
                return _with_cookie(request, render.onward_page(then), cookie)
        except (Unauthenticated, ValueError) as error:
            text = error.message if isinstance(error, Unauthenticated) else "this is not a key of ours"
            return render.login_page(status=401, error=text, then=then)
        except (Forbidden, TooLarge) as error:
            return render.login_page(status=403, error=error.message, then=then)
        except AWAY:
            return render.login_page(status=503, error="the database does not answer right now", then=then)
        return render.login_page(then=then)

    return answer


async def logout(visit: Visit) -> Response:
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
