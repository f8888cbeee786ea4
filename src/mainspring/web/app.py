"""The web UI: pages made on the server, live by server-sent events, whole without script."""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring.api.context import Context
from mainspring.domain.errors import NotFound
from mainspring.web import (
    actions,
    alerts,
    bulk,
    changes,
    charts,
    execution,
    failures,
    fleet,
    flowform,
    jobtext,
    login,
    pages,
    reasons,
    runform,
    runs,
    settings,
    system,
    versions,
    worker,
    workflows,
)
from mainspring.web.calendar import Calendar
from mainspring.web.crowds import Crowds
from mainspring.web.edit import ScheduleEdit
from mainspring.web.first import First
from mainspring.web.gate import Handle, Visit, changing, reading
from mainspring.web.jobform import JobForm
from mainspring.web.ledger import ledger
from mainspring.web.pasts import Pasts
from mainspring.web.playground import Playground
from mainspring.web.pulse import Pulse
from mainspring.web.render import HEADERS, STATIC, VERSION, lay_rail
from mainspring.web.search import search
from mainspring.web.stream import Stream


def routes(context: Context) -> list[BaseRoute]:
    """Every path of the UI. Only the login answers strangers."""
    pulse, crowds, pasts = Pulse(), Crowds(), Pasts()
    form, edit = JobForm(crowds), ScheduleEdit(crowds)
    read: dict[str, Handle] = {
        "/": First(pulse, pasts),
        "/jobs": pages.jobs,
        "/jobs:bulk": bulk.JOBS.ask,
        "/executions:bulk": bulk.EXECUTIONS.ask,
        "/jobs/{ref}": pages.job,
        "/jobs/{ref}/chart": charts.chart,
        "/jobs/{ref}/ledger": ledger,
        "/jobs/{ref}/stats": reasons.stats,
        "/jobs/{ref}/why": reasons.why_not,
        "/jobs/{ref}/versions": versions.versions,
        "/jobs/{ref}/rollback": versions.look_back,
        "/jobs/{ref}/schedule": edit.look,
        "/executions": pages.executions,
        "/executions/{ref}": execution.execution,
        "/executions/{ref}/output": execution.earlier,
        "/executions/{ref}/output.txt": execution.download,
        "/workflows": workflows.listing,
        "/workflows/new": flowform.fresh,
        "/workflows/{ref}": workflows.workflow,
        "/workflows/{ref}/edit": flowform.edit,
        "/runs/{ref}": runs.run,
        "/search": search,
        "/calendar": Calendar(crowds, pasts),
        "/queues": fleet.list_queues,
        "/workers": fleet.workers,
        "/workers/{ref}": worker.worker,
        "/settings": settings.settings,
        "/alerts": alerts.alerts,
        "/channels": alerts.channels,
        "/playground": Playground(crowds),
        "/new": form.fresh,
        "/new.yaml": jobtext.fresh,
        "/jobs/{ref}/yaml": jobtext.edit,
        "/jobs/{ref}/edit": form.edit,
        "/jobs/{ref}/run": runform.form,
        "/jobs/{ref}/pause": actions.PAUSE.page,
        "/jobs/{ref}/resume": actions.RESUME.page,
        "/jobs/{ref}/delete": actions.DELETE.page,
        "/executions/{ref}/cancel": actions.CANCEL.page,
        "/runs/{ref}/cancel": actions.CANCEL_RUN.page,
        "/runs/{ref}/rerun": actions.RERUN.page,
        "/runs/{ref}/decide": actions.DECIDE.page,
        "/ui/stream": Stream(pulse, pasts),
        "/static/{file}": static,
    }
    change: dict[str, Handle] = {
        "/jobs:bulk": bulk.JOBS.act,
        "/executions:bulk": bulk.EXECUTIONS.act,
        "/jobs/{ref}/pause": actions.PAUSE.act,
        "/jobs/{ref}/resume": actions.RESUME.act,
        "/jobs/{ref}/run": runform.run,
        "/jobs/{ref}/delete": actions.DELETE.act,
        "/jobs/{ref}/schedule": edit.save,
        "/jobs/{ref}/rollback": versions.bring_back,
        "/new": form.create,
        "/new.yaml": jobtext.create,
        "/jobs/{ref}/yaml": jobtext.save,
        "/jobs/{ref}/edit": form.save,
        "/executions/{ref}/cancel": actions.CANCEL.act,
        "/workflows/new": flowform.create,
        "/workflows/{ref}/edit": flowform.save,
        "/workflows/{ref}/run": workflows.start,
        "/runs/{ref}/cancel": actions.CANCEL_RUN.act,
        "/runs/{ref}/rerun": actions.RERUN.act,
        "/runs/{ref}/decide": actions.DECIDE.act,
        "/silences/{ref}/delete": alerts.end_silence,
        "/silences": alerts.add_silence,
        "/settings/blackouts": settings.add_blackout,
        "/settings/blackouts/{ref}/end": settings.end_blackout,
        "/channels/{ref}/test": alerts.try_channel,
        "/channels/{ref}/enable": alerts.enable_channel,
        "/backfills/{ref}/pause": changes.pause_backfill,
        "/backfills/{ref}/resume": changes.resume_backfill,
        "/backfills/{ref}/cancel": changes.cancel_backfill,
    }
    operate: dict[str, Handle] = {
        "/failures": failures.failures,
        "/failures/plan": failures.plan,
        "/failures/{ref}": failures.failure,
    }
    settle: dict[str, Handle] = {
        "/failures/group/replay": failures.replay_group,
        "/failures/group/dismiss": failures.dismiss_group,
        "/failures/{ref}/claim": failures.claim,
        "/failures/{ref}/release": failures.release,
        "/failures/{ref}/note": failures.note,
        "/failures/{ref}/replay": failures.replay,
        "/failures/{ref}/dismiss": failures.dismiss,
    }
    administer: dict[str, Handle] = {"/system": system.overview}
    rule: dict[str, Handle] = {
        "/queues/{ref}/pause": fleet.pause_queue,
        "/queues/{ref}/resume": fleet.resume_queue,
        "/settings/tokens": settings.create_token,
        "/settings/tokens/{ref}/revoke": settings.revoke_token,
    }
    lay_rail({*read, *operate, *administer})
    return [
        Route("/login", login.login(context), methods=["GET", "POST"]),
        Route("/logout", changing(context, login.logout, "read"), methods=["POST"]),
        *(Route(path, reading(context, handle), methods=["GET"]) for path, handle in read.items()),
        *(Route(path, changing(context, handle), methods=["POST"]) for path, handle in change.items()),
        *(Route(path, reading(context, handle, failures.SCOPE), methods=["GET"]) for path, handle in operate.items()),
        *(Route(path, changing(context, handle, failures.SCOPE), methods=["POST"]) for path, handle in settle.items()),
        *(Route(path, reading(context, handle, "admin"), methods=["GET"]) for path, handle in administer.items()),
        *(Route(path, changing(context, handle, "admin"), methods=["POST"]) for path, handle in rule.items()),
    ]


async def static(visit: Visit) -> Response:
    """Style and scripts, kept by the browser for as long as their version is asked for."""
    found = STATIC.get(visit.request.path_params["file"])
    if found is None:
        raise NotFound("there is no such file")
    kept = "private, max-age=31536000, immutable" if visit.query("v") == VERSION else "no-cache"
    return Response(found[1], headers={**HEADERS, "Cache-Control": kept, "Content-Type": found[0]})
