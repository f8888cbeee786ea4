"""The ledger of a job: the outcome of each due time, and the next fires."""

from __future__ import annotations

from starlette.responses import Response

from mainspring import wire
from mainspring.domain.execution import LIVE
from mainspring.views import fires as fire_views
from mainspring.views import jobs as job_views
from mainspring.web import render
from mainspring.web.draw.filters import plural
from mainspring.web.endpoint import PageRequest
from mainspring.web.urls import link

ENTRIES_SHOWN = 50
FIRES_SHOWN = 50

_SKIP_REASONS = {
    "misfire": "missed, and skipped by the misfire policy",
    "overlap": "the previous execution was still running",
    "paused": "the job was paused",
    "rescheduled": "the schedule was changed first",
    "deleted": "the job was deleted first",
    "blackout": "a blackout was active",
    "start_by": "not started before its start deadline",
    "needs": "the jobs it depends on had not succeeded in time",
}
_OUTCOMES = {
    "succeeded": "Succeeded.",
    "failed": "Failed after all attempts.",
    "timed_out": "Timed out.",
    "lost": "The worker was lost, and the job runs at most once.",
    "running": "Running.",
    "queued": "Waiting for a worker.",
    "waiting": "Not due yet.",
    "blocked": "Waiting for the previous execution.",
}


async def ledger(request: PageRequest) -> Response:
    """GET /jobs/{ref}/ledger."""
    database, tenant = request.context.database, request.caller.tenant
    job = await job_views.get(database, request.ref, tenant=tenant)
    ref, cursor = str(job.job_id), request.query("cursor")
    page = await fire_views.ledger(database, ref, tenant=tenant, cursor=cursor or None, limit=ENTRIES_SHOWN)
    fires = await fire_views.of_job(database, ref, tenant=tenant, count=FIRES_SHOWN)
    return render.page(
        "job_ledger.html",
        request.caller,
        job=job,
        rows=[(entry, describe(entry)) for entry in page.items],
        fires=fires,
        cursor=cursor,
        next_page=page.next_cursor and link(request.http.url.path, cursor=page.next_cursor),
        summary=summarize(page.items) if not cursor else "",
    )


def describe(entry: wire.LedgerEntry) -> str:
    """Describe an entry: "57 fires skipped: the job was paused."."""
    if entry.state == "skipped":
        reason = _SKIP_REASONS.get(entry.reason or "", entry.reason or "")
        return f"{plural(entry.fires, 'fire')} skipped: {reason}." if entry.fires > 1 else _sentence(reason)
    if entry.state == "cancelled":
        return _sentence(_SKIP_REASONS.get(entry.reason or "", entry.reason or "cancelled by a user"))
    if entry.state == "waiting" and entry.late_ms is not None:
        return "Failed; waiting to retry."
    return _OUTCOMES[entry.state]


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + "."


def summarize(entries: list[wire.LedgerEntry]) -> str:
    """Summarize the latest due times in one sentence; entries that have not ended do not count."""
    ended = [entry for entry in entries if entry.state not in LIVE]
    if not ended:
        return ""
    total = sum(entry.fires for entry in ended)
    succeeded = sum(entry.state == "succeeded" for entry in ended)
    skipped = sum(entry.fires for entry in ended if entry.state == "skipped")
    rest = total - succeeded - skipped
    noun = "fire" if all(entry.started_by is None for entry in ended) else "start"
    if succeeded == total:
        return f"The only {noun} so far succeeded." if total == 1 else f"All of the last {total:,} {noun}s succeeded."
    parts = [f"{succeeded:,} succeeded", *([f"{rest:,} did not succeed"] if rest else [])]
    parts += [f"{skipped:,} {'was' if skipped == 1 else 'were'} skipped"] if skipped else []
    return f"Of the last {plural(total, noun)}, {', '.join(parts[:-1])} and {parts[-1]}."
