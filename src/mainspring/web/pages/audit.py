"""Who did what, when, to what and why."""

from __future__ import annotations

import json
import shlex
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from mainspring import wire
from mainspring.domain.audit import ACTIONS, KINDS
from mainspring.domain.errors import Invalid
from mainspring.views import audit as audit_views
from mainspring.views.refs import is_id
from mainspring.web.access import Visit
from mainspring.web.forms.schedule_error import slip_of
from mainspring.web.pages.jobs import link
from mainspring.web.render import page

SCOPE = "operate"
SHOWN = 50
PLACES = {
    "job": "/jobs/", "workflow": "/workflows/", "execution": "/executions/", "run": "/runs/", "step": "/runs/",
    "dead_letter": "/failures/",
}  # fmt: skip
LISTS = {
    "backfill": "/jobs", "calendar": "/settings", "blackout": "/settings", "token": "/settings", "channel": "/channels",
    "rule": "/alerts", "silence": "/alerts", "reservation": "/queues",
}  # fmt: skip
"""Where those are shown that have no page of their own."""


async def audit(visit: Visit) -> Response:
    """GET /audit, with `subject`, `actor` and `action` (one, or a kind of subject) in the address."""
    chosen = {name: visit.query(name)[:200] for name in ("subject", "actor", "action")}
    cursor = visit.query("cursor")
    found, wrong = wire.Page[wire.AuditEntry](items=[]), None
    try:
        found = await audit_views.list_entries(
            visit.context.database,
            tenant=visit.caller.tenant,
            cursor=cursor or None,
            limit=SHOWN,
            **{name: value or None for name, value in chosen.items()},
        )
    except Invalid as error:
        wrong = slip_of(error, chosen["action"], "")
    given = {name: value for name, value in chosen.items() if value}
    return page(
        "audit.html",
        visit.caller,
        status=422 if wrong else 200,
        entries=found.items,
        chosen=chosen,
        wrong=wrong,
        kinds={kind: [a for a in ACTIONS if a.startswith(f"{kind}.")] for kind in KINDS},
        words=words,
        place=place,
        details=details,
        cursor=cursor,
        first=link("/audit", **given),
        filtered=lambda **more: link("/audit", **more),
        onward=found.next_cursor and link("/audit", **given, cursor=found.next_cursor),
        command=shlex.join(["mainspring", "audit", "list", *(f"--{name}={value}" for name, value in given.items())]),
    )


def words(action: str) -> str:
    """`dead_letter.force_complete` as people say it."""
    kind, _, what = action.partition(".")
    return f"{what} {kind}".replace("_", " ")


def place(entry: wire.AuditEntry) -> str:
    """The page of what it was done to, if there is one."""
    kind = entry.action.partition(".")[0]
    if kind == "queue":
        return f"/queues#q-{quote(entry.subject)}"
    return PLACES[kind] + entry.subject if kind in PLACES and is_id(entry.subject) else LISTS.get(kind, "")


def details(entry: wire.AuditEntry) -> str:
    """What else it says, in a line."""
    if not isinstance(entry.details, dict):
        return "" if entry.details is None else json.dumps(entry.details)
    return ", ".join(f"{name.replace('_', ' ')}: {_told(value)}" for name, value in entry.details.items())


def _told(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(_told(each) for each in value)
    return value if isinstance(value, str) else json.dumps(value)
