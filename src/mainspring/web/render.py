"""Render templates as pages and fragments, with the security headers of every response."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import PurePath
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context, select_autoescape
from jinja2.runtime import Context as JinjaContext
from markupsafe import Markup
from starlette.responses import HTMLResponse

from mainspring import __version__, wire
from mainspring.api.auth import Caller
from mainspring.clock import SystemClock, instant
from mainspring.display.times import span
from mainspring.domain.issuer import Issuer
from mainspring.domain.metadata import contact_fields
from mainspring.domain.placement.resources import show_amounts
from mainspring.domain.retry import describe_retries
from mainspring.views.execution_timeline import events_of
from mainspring.views.job_health import streak
from mainspring.web.draw import filters, states, terminal_output
from mainspring.web.draw.dag import step_kind
from mainspring.web.draw.duration_bars import duration_bars
from mainspring.web.reader import Reader

_CONTENT_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
_FOLDER = resources.files(__package__).joinpath("static")


def _files(folder: Traversable) -> dict[str, tuple[str, bytes]]:
    """Return content type and bytes of each style and script; a missing folder is empty."""
    found = sorted(folder.iterdir(), key=lambda file: file.name) if folder.is_dir() else []
    return {f.name: (type_, f.read_bytes()) for f in found if (type_ := _CONTENT_TYPES.get(PurePath(f.name).suffix))}


ASSETS = _files(_FOLDER.joinpath("assets"))
"""Third-party scripts, installed by `make assets`. Optional: without dagre, graphs keep the server's layout."""
STATIC = _files(_FOLDER) | ASSETS
VERSION = hashlib.sha256(b"".join(content for _, content in STATIC.values())).hexdigest()[:12]
"""Hash of all static files, part of their addresses: browsers fetch a new release at once."""

_CSS = STATIC["style.css"][1].decode()
_CSS_HASH = base64.b64encode(hashlib.sha256(_CSS.encode()).digest()).decode()
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src {style}; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY.format(style="'self'"),
    "X-Content-Type-Options": "nosniff",
    # No referrer for other sites. `no-referrer` would also remove the Origin from forms, and the server checks it.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LOGIN_HEADERS = {
    **HEADERS,
    "Content-Security-Policy": _POLICY.format(style=f"'sha256-{_CSS_HASH}'"),
}


@dataclass(frozen=True, slots=True)
class NavEntry:
    """An entry of the navigation. `key` is its shortcut after `g`; `apart` starts a new group."""

    name: str
    path: str
    icon: str
    key: str
    scope: str = ""
    apart: bool = False


NAVIGATION = (
    NavEntry("Now", "/", "pulse", "n"),
    NavEntry("Jobs", "/jobs", "list", "j"),
    NavEntry("Executions", "/executions", "triangle", "e"),
    NavEntry("Workflows", "/workflows", "graph", "w"),
    NavEntry("Triggers", "/triggers", "play", "r"),
    NavEntry("Calendar", "/calendar", "calendar", "c"),
    NavEntry("Failures", "/failures", "skull", "f", scope="operate"),
    NavEntry("Queues", "/queues", "queue", "q", apart=True),
    NavEntry("Workers", "/workers", "rack", "k"),
    NavEntry("Alerts", "/alerts", "alert", "a"),
    NavEntry("Audit log", "/audit", "book", "u", scope="operate"),
    NavEntry("System", "/system", "gauge", "s", scope="admin"),
    NavEntry("Playground", "/playground", "flask", "p", apart=True),
    NavEntry("Settings", "/settings", "sliders", "t"),
)


@pass_context
def _clock(context: JinjaContext, at: datetime, now: datetime, *, millis: bool = False) -> str:
    """Format a time in the reader's zone."""
    return filters.clock(at, now, context["who"].zone, millis=millis)


@pass_context
def _zoned(context: JinjaContext, text: str, now: datetime) -> Markup:
    """Show the times of a text, which are in UTC, in the reader's zone."""
    return filters.zoned(text, now, context["who"].zone)


@pass_context
def _form_time(context: JinjaContext, at: datetime) -> str:
    """Format a time in the reader's zone for a form field."""
    return filters.form_time(at, context["who"].zone)


@pass_context
def _log(context: JinjaContext, chunks: list[wire.LogChunk], after_attempt: int, *, fold: bool, more: bool) -> Markup:
    """Render the log of a page: with times in the reader's zone, and folded."""
    zone, at = context["who"].zone, context["now"]
    return terminal_output.render(chunks, after_attempt, zone=zone, now=at, fold=fold, has_start=not more)


_environment = Environment(
    loader=PackageLoader("mainspring.web"),
    autoescape=select_autoescape(default=True, default_for_string=True),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters.update(
    ago=filters.ago,
    browser_name=filters.browser_name,
    amounts=show_amounts,
    clock=_clock,
    command=filters.command,
    compact=filters.compact,
    deadline=filters.deadline,
    duration_bars=duration_bars,
    events=events_of,
    form_time=_form_time,
    given_labels=filters.given_labels,
    isolation=filters.isolation,
    contact=contact_fields,
    json_text=filters.json_text,
    state_style=states.state_style,
    style_of_state=states.style_of_state,
    instant=instant,
    log=_log,
    output=terminal_output.render,
    plural=filters.plural,
    progress=filters.progress,
    raw_schedule=filters.raw_schedule,
    resolved_params=filters.resolved_params,
    retries=describe_retries,
    short=filters.short,
    span=span,
    stamp=filters.stamp,
    step_kind=step_kind,
    streak=streak,
    count_states=states.count_states,
    until=filters.until,
    wall=filters.wall,
    zoned=_zoned,
)
_environment.globals.update(
    between=filters.between, version=VERSION, release=__version__, navigation=(), assets=frozenset(ASSETS)
)


def set_navigation(paths: Collection[str]) -> None:
    """Show only the entries whose pages this server has."""
    _environment.globals["navigation"] = [entry for entry in NAVIGATION if entry.path in paths]


def now() -> datetime:
    """Return the time for display; decisions use database time."""
    return instant(SystemClock().now_ms())


def page(template: str, caller: Reader, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a page for a signed-in caller."""
    text = _environment.get_template(template).render(who=caller, now=now(), **values)
    return HTMLResponse(text, status, HEADERS)


def fragment(template: str, name: str, caller: Reader, **values: Any) -> str:
    """Render one macro of a template, so that the stream sends the same HTML as the page."""
    module = _environment.get_template(template).make_module({"who": caller, "now": now()})
    return str(getattr(module, name)(**values))


def login_page(
    *,
    status: int = 200,
    error: str = "",
    then: str = "/",
    proof: str,
    key: str = "",
    caller: Caller | None = None,
    issuers: Sequence[Issuer] = (),
) -> HTMLResponse:
    """Render the login with inline style: static files need a session. With `caller`, `key` signs in as that one."""
    template = _environment.get_template("login.html")
    text = template.render(
        style=Markup(_CSS), error=error, then=then, proof=proof, key=key, caller=caller, issuers=issuers
    )
    return HTMLResponse(text, status, LOGIN_HEADERS)


def redirect_page(to: str, *, status: int = 200) -> HTMLResponse:
    """Redirect by a page of this site: a SameSite=Strict cookie is not sent with a redirect from another site."""
    text = _environment.get_template("redirect.html").render(to=to)
    return HTMLResponse(text, status, {**HEADERS, "Referrer-Policy": "no-referrer"})
