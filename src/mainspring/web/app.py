"""The web UI: pages made on the server, live by server-sent events, whole without script."""

from __future__ import annotations

from dataclasses import dataclass, field

from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring.api.context import Context
from mainspring.domain.errors import NotFound
from mainspring.web.access import Handle, Visit, changing, reading
from mainspring.web.density_cache import DensityCache
from mainspring.web.draw import charts
from mainspring.web.fire_history import Pasts
from mainspring.web.forms import actions, bulk, changes, job_yaml, run_form, workflow_yaml
from mainspring.web.forms.job_form import JobForm
from mainspring.web.forms.schedule_edit import ScheduleEdit
from mainspring.web.overview_cache import OverviewCache
from mainspring.web.pages import (
    alerts,
    audit,
    execution,
    failures,
    fleet,
    job_tabs,
    jobs,
    login,
    runs,
    settings,
    system,
    versions,
    worker,
    workflows,
)
from mainspring.web.pages.calendar import Calendar
from mainspring.web.pages.ledger import ledger
from mainspring.web.pages.now import First
from mainspring.web.pages.playground import Playground
from mainspring.web.pages.search import search
from mainspring.web.render import HEADERS, STATIC, VERSION, lay_rail
from mainspring.web.stream import Stream


@dataclass(frozen=True, slots=True)
class Area:
    """Pages that belong together and what their forms do, by path; and the right that each of the two needs."""

    read: dict[str, Handle] = field(default_factory=dict)
    change: dict[str, Handle] = field(default_factory=dict)
    reads: str = "read"
    changes: str = "write"

    def routes(self, context: Context) -> list[BaseRoute]:
        return [
            *(Route(p, reading(context, handle, self.reads), methods=["GET"]) for p, handle in self.read.items()),
            *(Route(p, changing(context, handle, self.changes), methods=["POST"]) for p, handle in self.change.items()),
        ]


def routes(context: Context) -> list[BaseRoute]:
    """Every path of the UI. Only the login answers strangers."""
    pulse, crowds, pasts = OverviewCache(), DensityCache(), Pasts()
    areas = [
        _frame(pulse, crowds, pasts), _jobs(crowds), _executions(), _workflows(), _failures(), _fleet(), _rule(),
        _alerts(), _settings(),
    ]  # fmt: skip
    lay_rail({path for area in areas for path in area.read})
    return [
        Route("/login", login.login(context), methods=["GET", "POST"]),
        Route("/logout", changing(context, login.logout, "read"), methods=["POST"]),
        *(route for area in areas for route in area.routes(context)),
    ]


def _frame(pulse: OverviewCache, crowds: DensityCache, pasts: Pasts) -> Area:
    return Area(
        {
            "/": First(pulse, pasts),
            "/search": search,
            "/calendar": Calendar(crowds, pasts),
            "/playground": Playground(crowds),
            "/ui/stream": Stream(pulse, pasts),
            "/static/{file}": static,
        }
    )


def _jobs(crowds: DensityCache) -> Area:
    form, edit = JobForm(crowds), ScheduleEdit(crowds)
    return Area(
        {
            "/jobs": jobs.jobs,
            "/jobs:bulk": bulk.JOBS.ask,
            "/jobs/{ref}": jobs.job,
            "/jobs/{ref}/chart": charts.chart,
            "/jobs/{ref}/ledger": ledger,
            "/jobs/{ref}/stats": job_tabs.stats,
            "/jobs/{ref}/why": job_tabs.why_not,
            "/jobs/{ref}/versions": versions.versions,
            "/jobs/{ref}/rollback": versions.look_back,
            "/jobs/{ref}/schedule": edit.look,
            "/new": form.fresh,
            "/new.yaml": job_yaml.fresh,
            "/jobs/{ref}/yaml": job_yaml.edit,
            "/jobs/{ref}/edit": form.edit,
            "/jobs/{ref}/run": run_form.form,
            "/jobs/{ref}/pause": actions.PAUSE.page,
            "/jobs/{ref}/resume": actions.RESUME.page,
            "/jobs/{ref}/delete": actions.DELETE.page,
        },
        {
            "/jobs:bulk": bulk.JOBS.act,
            "/jobs/{ref}/pause": actions.PAUSE.act,
            "/jobs/{ref}/resume": actions.RESUME.act,
            "/jobs/{ref}/run": run_form.run,
            "/jobs/{ref}/delete": actions.DELETE.act,
            "/jobs/{ref}/schedule": edit.save,
            "/jobs/{ref}/rollback": versions.bring_back,
            "/new": form.create,
            "/new.yaml": job_yaml.create,
            "/jobs/{ref}/yaml": job_yaml.save,
            "/jobs/{ref}/edit": form.save,
            "/backfills/{ref}/pause": changes.pause_backfill,
            "/backfills/{ref}/resume": changes.resume_backfill,
            "/backfills/{ref}/cancel": changes.cancel_backfill,
        },
    )


def _executions() -> Area:
    return Area(
        {
            "/executions": jobs.executions,
            "/executions:bulk": bulk.EXECUTIONS.ask,
            "/executions/{ref}": execution.execution,
            "/executions/{ref}/output": execution.earlier,
            "/executions/{ref}/output.txt": execution.download,
            "/executions/{ref}/cancel": actions.CANCEL.page,
        },
        {"/executions:bulk": bulk.EXECUTIONS.act, "/executions/{ref}/cancel": actions.CANCEL.act},
    )


def _workflows() -> Area:
    return Area(
        {
            "/workflows": workflows.listing,
            "/workflows/new": workflow_yaml.fresh,
            "/workflows/{ref}": workflows.workflow,
            "/workflows/{ref}/edit": workflow_yaml.edit,
            "/workflows/{ref}/versions": workflows.versions,
            "/runs/{ref}": runs.run,
            "/runs/{ref}/cancel": actions.CANCEL_RUN.page,
            "/runs/{ref}/rerun": actions.RERUN.page,
            "/runs/{ref}/decide": actions.DECIDE.page,
        },
        {
            "/workflows/new": workflow_yaml.create,
            "/workflows/{ref}/edit": workflow_yaml.save,
            "/workflows/{ref}/run": workflows.start,
            "/workflows/{ref}/rollback": workflows.bring_back,
            "/runs/{ref}/cancel": actions.CANCEL_RUN.act,
            "/runs/{ref}/rerun": actions.RERUN.act,
            "/runs/{ref}/decide": actions.DECIDE.act,
        },
    )


def _failures() -> Area:
    """What went wrong for good and what people did: for those who operate."""
    return Area(
        {
            "/failures": failures.failures,
            "/failures/plan": failures.plan,
            "/failures/{ref}": failures.failure,
            "/audit": audit.audit,
        },
        {
            "/failures/group/replay": failures.replay_group,
            "/failures/group/dismiss": failures.dismiss_group,
            "/failures/{ref}/claim": failures.claim,
            "/failures/{ref}/release": failures.release,
            "/failures/{ref}/note": failures.note,
            "/failures/{ref}/replay": failures.replay,
            "/failures/{ref}/dismiss": failures.dismiss,
        },
        reads=failures.SCOPE,
        changes=failures.SCOPE,
    )


def _fleet() -> Area:
    return Area({"/queues": fleet.list_queues, "/workers": fleet.workers, "/workers/{ref}": worker.worker})


def _rule() -> Area:
    """For administrators alone."""
    return Area(
        {"/system": system.overview},
        {
            "/queues/{ref}/pause": fleet.pause_queue,
            "/queues/{ref}/resume": fleet.resume_queue,
            "/settings/tokens": settings.create_token,
            "/settings/tokens/{ref}/revoke": settings.revoke_token,
        },
        reads="admin",
        changes="admin",
    )


def _alerts() -> Area:
    return Area(
        {"/alerts": alerts.alerts, "/channels": alerts.channels},
        {
            "/silences": alerts.add_silence,
            "/silences/{ref}/delete": alerts.end_silence,
            "/channels/{ref}/test": alerts.try_channel,
            "/channels/{ref}/enable": alerts.enable_channel,
        },
    )


def _settings() -> Area:
    return Area(
        {"/settings": settings.settings},
        {
            "/settings/blackouts": settings.add_blackout,
            "/settings/blackouts/{ref}/end": settings.end_blackout,
        },
    )


async def static(visit: Visit) -> Response:
    """Style and scripts, kept by the browser for as long as their version is asked for."""
    found = STATIC.get(visit.request.path_params["file"])
    if found is None:
        raise NotFound("there is no such file")
    kept = "private, max-age=31536000, immutable" if visit.query("v") == VERSION else "no-cache"
    return Response(found[1], headers={**HEADERS, "Cache-Control": kept, "Content-Type": found[0]})
