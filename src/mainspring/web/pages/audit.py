"""The audit log: who changed what, when and why."""

from __future__ import annotations

import json
import shlex
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from mainspring import wire
from mainspring.domain.audit import ACTIONS, KINDS
from mainspring.domain.errors import Invalid
from mainspring.domain.principal import named
from mainspring.views import audit as audit_views
from mainspring.views.refs import is_id
from mainspring.web.endpoint import PageRequest
from mainspring.web.forms.input_error import locate_error
from mainspring.web.render import page
from mainspring.web.urls import link

SCOPE = "operate"
ENTRIES_SHOWN = 50
PAGES = {
    "job": "/jobs/", "workflow": "/workflows/", "execution": "/executions/", "run": "/runs/", "step": "/runs/",
    "dead_letter": "/failures/",
}  # fmt: skip
LISTS = {
    "backfill": "/jobs", "calendar": "/settings", "blackout": "/settings", "token": "/settings", "channel": "/channels",
    "rule": "/alerts", "silence": "/alerts", "reservation": "/queues", "duration": "/queues",
    "browser_session": "/settings",
    "secret": "/settings", "manifest": "/jobs", "worker": "/workers", "trigger": "/triggers",
    "role": "/settings", "user": "/settings", "tenant": "/settings/tenants", "login": "/audit", "request": "/audit",
}  # fmt: skip
"""The list that shows subjects without a page of their own."""


async def audit(request: PageRequest) -> Response:
    """GET /audit, filtered by `subject`, `actor` and `action` (an action, or a kind of subject)."""
    chosen = {name: request.query(name)[:200] for name in ("subject", "actor", "action")}
    cursor = request.query("cursor")
    found, error = wire.Page[wire.AuditEntry](items=[]), None
    try:
        found = await audit_views.list_entries(
            request.context.database,
            tenant=request.caller.tenant,
            cursor=cursor or None,
            limit=ENTRIES_SHOWN,
            **{name: value or None for name, value in chosen.items()},
        )
    except Invalid as refused:
        error = locate_error(refused, chosen["action"], "")
    given = {name: value for name, value in chosen.items() if value}
    return page(
        "audit.html",
        request.caller,
        status=422 if error else 200,
        entries=found.items,
        chosen=chosen,
        error=error,
        kinds={kind: [a for a in ACTIONS if a.startswith(f"{kind}.")] for kind in KINDS},
        action_label=action_label,
        page_of=page_of,
        named=named,
        details=details,
        cursor=cursor,
        first=link("/audit", **given),
        filtered=lambda **more: link("/audit", **more),
        next_page=found.next_cursor and link("/audit", **given, cursor=found.next_cursor),
        command=shlex.join(["mainspring", "audit", "list", *(f"--{name}={value}" for name, value in given.items())]),
    )


def action_label(action: str) -> str:
    """Return an action in words: `dead_letter.force_complete` is "force complete dead letter"."""
    kind, _, what = action.partition(".")
    return f"{what} {kind}".replace("_", " ")


def page_of(entry: wire.AuditEntry) -> str:
    """Return the path of the page that shows the subject; empty if there is none."""
    kind = entry.action.partition(".")[0]
    if kind == "queue":
        return f"/queues#q-{quote(entry.subject)}"
    return PAGES[kind] + entry.subject if kind in PAGES and is_id(entry.subject) else LISTS.get(kind, "")


def details(entry: wire.AuditEntry) -> str:
    """Return the details of an entry in one line."""
    if not isinstance(entry.details, dict):
        return "" if entry.details is None else json.dumps(entry.details)
    given = {name: value for name, value in entry.details.items() if value is not None}
    return ", ".join(f"{name.replace('_', ' ')}: {_text(value)}" for name, value in given.items())


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(_text(each) for each in value)
    return value if isinstance(value, str) else json.dumps(value)
