"""Did it run? What became of each due instant of a job, in words, and what is due next."""

from __future__ import annotations

from starlette.responses import Response

from mainspring import wire
from mainspring.domain.execution import LIVE
from mainspring.views import fires as fire_views
from mainspring.views import jobs as job_views
from mainspring.web import render
from mainspring.web.access import Visit
from mainspring.web.draw.labels import plural
from mainspring.web.pages.jobs import link

ENTRIES_SHOWN = 50
FIRES_AHEAD = 50

_WHY = {
    "misfire": "missed, and not made up for",
    "overlap": "the one before was still alive",
    "paused": "the job was paused",
    "rescheduled": "the schedule was changed first",
    "deleted": "the job was deleted first",
    "blackout": "a blackout was in force",
    "start_by": "it could not start in time",
    "needs": "jobs that it needs had not succeeded in time",
}
_STATES = {
    "succeeded": "It ran.",
    "failed": "It ran, and failed for good.",
    "timed_out": "It ran longer than it may.",
    "lost": "Its worker was lost, and it may not run twice.",
    "running": "It is running.",
    "queued": "It waits for a worker.",
    "waiting": "Its time has not come.",
    "blocked": "It waits for the one before it.",
}


async def ledger(visit: Visit) -> Response:
    """GET /jobs/{ref}/ledger."""
    database, tenant = visit.context.database, visit.caller.tenant
    job = await job_views.get(database, visit.ref, tenant=tenant)
    ref, cursor = str(job.job_id), visit.query("cursor")
    page = await fire_views.ledger(database, ref, tenant=tenant, cursor=cursor or None, limit=ENTRIES_SHOWN)
    fires = await fire_views.of_job(database, ref, tenant=tenant, count=FIRES_AHEAD)
    onward = page.next_cursor and link(visit.request.url.path, cursor=page.next_cursor)
    rows = [(entry, told(entry)) for entry in page.items]
    return render.page(
        "ledger.html",
        visit.caller,
        job=job,
        rows=rows,
        fires=fires,
        cursor=cursor,
        onward=onward,
        verdict=verdict(page.items) if not cursor else "",
    )


def told(entry: wire.LedgerEntry) -> str:
    """One entry in words: "57 fires skipped: the job was paused"."""
    if entry.state == "skipped":
        why = _WHY.get(entry.reason or "", entry.reason or "")
        return f"{plural(entry.fires, 'fire')} skipped: {why}." if entry.fires > 1 else _sentence(why)
    if entry.state == "cancelled":
        return _sentence(_WHY.get(entry.reason or "", entry.reason or "somebody asked for it"))
    if entry.state == "waiting" and entry.late_ms is not None:
        return "It failed and waits to be tried again."
    return _STATES[entry.state]


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + "."


def verdict(entries: list[wire.LedgerEntry]) -> str:
    """The latest due instants in one sentence; those that are not decided yet do not count."""
    ended = [entry for entry in entries if entry.state not in LIVE]
    if not ended:
        return ""
    total = sum(entry.fires for entry in ended)
    ran = sum(entry.state == "succeeded" for entry in ended)
    skipped = sum(entry.fires for entry in ended if entry.state == "skipped")
    rest = total - ran - skipped
    if ran == total:
        return f"It ran at {'the only instant' if total == 1 else f'each of the latest {total:,} instants'} it was due."
    parts = [f"{ran:,} succeeded", *([f"{rest:,} did not succeed"] if rest else [])]
    parts += [f"{skipped:,} {'was' if skipped == 1 else 'were'} skipped"] if skipped else []
    return f"Of the latest {plural(total, 'due instant')}, {', '.join(parts[:-1])} and {parts[-1]}."
