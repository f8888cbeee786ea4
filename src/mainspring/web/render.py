"""Pages from templates, and the headers that every page carries."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import PurePath
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from starlette.responses import HTMLResponse

from mainspring import __version__
from mainspring.api.auth import Caller
from mainspring.clock import SystemClock, instant
from mainspring.display.times import span
from mainspring.domain.placement.resources import show_amounts
from mainspring.domain.retry import describe_retries
from mainspring.views.execution_timeline import events_of
from mainspring.web.draw import labels, terminal_output

_KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
_FOLDER = resources.files(__package__).joinpath("static")


def _files(folder: Traversable) -> dict[str, tuple[str, bytes]]:
    """Style and scripts by name, each with its kind; a folder that was not built is as good as empty."""
    found = sorted(folder.iterdir(), key=lambda file: file.name) if folder.is_dir() else []
    return {f.name: (kind, f.read_bytes()) for f in found if (kind := _KINDS.get(PurePath(f.name).suffix))}


ASSETS = _files(_FOLDER.joinpath("assets"))
"""Other people's scripts, put there by `make assets`. Pages are whole without them, only plainer."""
STATIC = _files(_FOLDER) | ASSETS
VERSION = hashlib.sha256(b"".join(content for _, content in STATIC.values())).hexdigest()[:12]
"""Of all static files: a new release is fetched at once, an old one is never asked for again."""

_CSS = STATIC["style.css"][1].decode()
_CSS_HASH = base64.b64encode(hashlib.sha256(_CSS.encode()).digest()).decode()
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src {style}; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY.format(style="'self'"),
    "X-Content-Type-Options": "nosniff",
    # Nothing leaves for other sites. `no-referrer` would also take the Origin off our own forms, which is checked.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LOGIN_HEADERS = {
    **HEADERS,
    "Content-Security-Policy": _POLICY.format(style=f"'sha256-{_CSS_HASH}'"),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A page of the rail: `g` and its key lead there; `apart` begins a group."""

    name: str
    path: str
    icon: str
    key: str
    scope: str = ""
    apart: bool = False


RAIL = (
    Entry("Now", "/", "pulse", "n"),
    Entry("Jobs", "/jobs", "list", "j"),
    Entry("Executions", "/executions", "triangle", "e"),
    Entry("Workflows", "/workflows", "graph", "w"),
    Entry("Calendar", "/calendar", "calendar", "c"),
    Entry("Failures", "/failures", "skull", "f", scope="operate"),
    Entry("Queues", "/queues", "queue", "q", apart=True),
    Entry("Workers", "/workers", "rack", "k"),
    Entry("Alerts", "/alerts", "alert", "a"),
    Entry("Audit", "/audit", "book", "u", scope="operate"),
    Entry("System", "/system", "gauge", "s", scope="admin"),
    Entry("Playground", "/playground", "flask", "p", apart=True),
    Entry("Settings", "/settings", "sliders", "t"),
)

_environment = Environment(
    loader=PackageLoader("mainspring.web"),
    autoescape=select_autoescape(default=True, default_for_string=True),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters.update(
    ago=labels.ago,
    amounts=show_amounts,
    clock=labels.clock,
    command=labels.command,
    compact=labels.compact,
    deadline=labels.deadline,
    events=events_of,
    given_labels=labels.given_labels,
    isolation=labels.isolation,
    json_text=labels.json_text,
    look=labels.look,
    look_of=labels.look_of,
    moment=instant,
    output=terminal_output.render,
    plural=labels.plural,
    pace=labels.pace,
    raw_schedule=labels.raw_schedule,
    retries=describe_retries,
    short=labels.short,
    span=span,
    stamp=labels.stamp,
    summary=labels.summary,
    until=labels.until,
    wall=labels.wall,
)
_environment.globals.update(
    between=labels.between, version=VERSION, release=__version__, rail=(), assets=frozenset(ASSETS)
)


def lay_rail(paths: Collection[str]) -> None:
    """The rail leads to what this server has."""
    _environment.globals["rail"] = [entry for entry in RAIL if entry.path in paths]


def now() -> datetime:
    """For display only; what is decided is decided by database time."""
    return instant(SystemClock().now_ms())


def page(template: str, caller: Caller, *, status: int = 200, **values: Any) -> HTMLResponse:
    """A whole page for someone who is signed in."""
    text = _environment.get_template(template).render(who=caller, now=now(), **values)
    return HTMLResponse(text, status, HEADERS)


def fragment(template: str, name: str, caller: Caller, **values: Any) -> str:
    """One macro of a template by itself: what the stream sends looks as what the page was made with."""
    module = _environment.get_template(template).make_module({"who": caller, "now": now()})
    return str(getattr(module, name)(**values))


def login_page(*, status: int = 200, error: str = "", then: str = "/") -> HTMLResponse:
    """Carries its own style: nothing else is served to strangers."""
    text = _environment.get_template("login.html").render(style=Markup(_CSS), error=error, then=then)
    return HTMLResponse(text, status, LOGIN_HEADERS)


def onward_page(to: str, *, status: int = 200) -> HTMLResponse:
    """Sends the browser on as a step of its own: a Strict cookie does not travel with a redirect from elsewhere."""
    text = _environment.get_template("onward.html").render(to=to)
    return HTMLResponse(text, status, {**HEADERS, "Referrer-Policy": "no-referrer"})
