"""The list of executions, filtered by state, job and time."""

from __future__ import annotations

import shlex

from starlette.responses import Response

from mainspring import wire
from mainspring.clock import millis
from mainspring.domain.errors import Invalid, NotFound
from mainspring.domain.filter import EXECUTION_FIELDS, ExecutionFilter, execution_filter, spell
from mainspring.views import executions as execution_views
from mainspring.views import search
from mainspring.web.endpoint import PageRequest
from mainspring.web.forms.input_error import InputError, locate_error
from mainspring.web.render import now, page
from mainspring.web.urls import link

EXECUTIONS_SHOWN = 50
STATE_FILTERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("All", ()),
    ("Running", ("running",)),
    ("Queued", ("queued",)),
    ("Waiting", ("waiting", "blocked")),
    ("Succeeded", ("succeeded",)),
    ("Failed", ("failed", "timed_out", "lost")),
    ("Cancelled", ("cancelled",)),
    ("Skipped", ("skipped",)),
)


async def executions(request: PageRequest) -> Response:
    """GET /executions."""
    given = spell(job=request.query("job"), state=tuple(request.http.query_params.getlist("state")))
    text, cursor = request.query("q") or given, request.query("cursor")
    found, error, status = wire.Page[wire.Execution](items=[]), None, 200
    wanted = ExecutionFilter()
    try:
        wanted = execution_filter(text, millis(now()))
        found = await _find(request, wanted, text)
    except Invalid as refused:
        error, status = locate_error(refused, text, ""), 422
    except NotFound as missing:
        error, status = InputError("job", missing.message, "", "", "see the list of jobs"), 404
    rest = " ".join(word for word in text.split() if not word.lower().startswith("state:"))
    filters = [
        (name, link("/executions", q=f"{spell(state=of)} {rest}".strip()), set(of) == set(wanted.states))
        for name, of in STATE_FILTERS
    ]
    stream = link("/ui/stream", view="executions", job="".join(wanted.jobs), state=wanted.states)
    return page(
        "executions.html",
        request.caller,
        status=status,
        executions=found.items,
        filters=filters,
        text=text,
        error=error,
        fields=EXECUTION_FIELDS,
        cursor=cursor,
        next_page=found.next_cursor and link("/executions", q=text, cursor=found.next_cursor),
        first=link("/executions", q=text),
        stream="" if cursor or error or not _is_simple(wanted) else stream,
        bulk=link("/executions:bulk", q=text),
        command=shlex.join(["mainspring", "executions", "list", *([text] if text else [])]),
    )


def _is_simple(wanted: ExecutionFilter) -> bool:
    """Whether the filter has nothing but states and one job: only such lists are live."""
    return len(wanted.jobs) <= 1 and wanted == ExecutionFilter(states=wanted.states, jobs=wanted.jobs)


async def _find(request: PageRequest, wanted: ExecutionFilter, text: str) -> wire.Page[wire.Execution]:
    database, tenant, cursor = request.context.database, request.caller.tenant, request.query("cursor") or None
    if not _is_simple(wanted):
        return await search.find_executions(database, text, tenant=tenant, cursor=cursor, limit=EXECUTIONS_SHOWN)
    return await execution_views.list_executions(
        database,
        tenant=tenant,
        states=wanted.states,
        job="".join(wanted.jobs) or None,
        cursor=cursor,
        limit=EXECUTIONS_SHOWN,
    )
