"""Routes of the web UI: server-rendered pages, live through server-sent events, usable without script."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring.api.context import Context
from mainspring.api.federated import CALLBACK
from mainspring.domain.errors import NotFound
from mainspring.web.endpoint import Handle, PageRequest, changing, reading
from mainspring.web.fire_density_cache import FireDensityCache
from mainspring.web.fire_history_cache import FireHistoryCache
from mainspring.web.forms import actions, bulk, confirmations, job_yaml, run_form, workflow_yaml
from mainspring.web.forms.fleet_confirmations import DRAIN, PAUSE_QUEUE
from mainspring.web.forms.job_form import JobForm
from mainspring.web.forms.schedule_edit import ScheduleEdit
from mainspring.web.overview_cache import OverviewCache
from mainspring.web.pages import (
    alerts,
    api_reference,
    audit,
    execution,
    executions,
    failures,
    job,
    job_chart,
    job_ledger,
    job_versions,
    jobs,
    login,
    queues,
    runs,
    search,
    settings,
    system,
    tenants,
    triggers,
    workers,
    workflows,
)
from mainspring.web.pages.calendar import Calendar
from mainspring.web.pages.now import NowPage
from mainspring.web.pages.playground import Playground
from mainspring.web.render import HEADERS, STATIC, VERSION, set_navigation
from mainspring.web.stream import Stream


@dataclass(frozen=True, slots=True)
class UiPage:
    """A path of the UI with its GET and POST handlers, and the scope that each of them needs.

    `accepts`: the query parameters of a page that leads to a change. Others are refused, so that a filter with a wrong
    name cannot widen what the change applies to.
    """

    path: str
    get: Handle | None = None
    post: Handle | None = None
    read_scope: str = "read"
    write_scope: str = "write"
    checks_grants: bool = False  # whether tokens may post that are restricted to queues or labels
    accepts: Collection[str] | None = None

    def routes(self, context: Context) -> list[BaseRoute]:
        found: list[BaseRoute] = []
        if self.get is not None:
            banner = not self.path.startswith(("/static/", "/ui/"))
            page = reading(context, self.get, self.read_scope, self.accepts, banner=banner)
            found.append(Route(self.path, page, methods=["GET"]))
        if self.post is not None:
            post = changing(context, self.post, self.write_scope, checks_grants=self.checks_grants)
            found.append(Route(self.path, post, methods=["POST"]))
        return found


SELECTED = ("q", "do", "reason", "until")
"""What a bulk action applies to, and its fields."""
PREVIEWED = ("expression", "zone", "job", "local", "part")
"""What the preview of a schedule sends."""


@dataclass(frozen=True, slots=True)
class Caches:
    """What several pages share."""

    overview: OverviewCache = field(default_factory=OverviewCache)
    density: FireDensityCache = field(default_factory=FireDensityCache)
    history: FireHistoryCache = field(default_factory=FireHistoryCache)


def routes(context: Context) -> list[BaseRoute]:
    """Return every route of the UI. Only the login answers callers without a session."""
    pages = every_page()
    set_navigation({page.path for page in pages if page.get is not None})
    return [
        Route("/login", login.login(context), methods=["GET", "POST"]),
        Route(CALLBACK, login.callback(context), methods=["GET"]),
        Route("/logout", changing(context, login.logout, "read"), methods=["POST"]),
        *(route for page in pages for route in page.routes(context)),
    ]


def every_page() -> list[UiPage]:
    """Every page and form, with the scopes that they need."""
    caches = Caches()
    return [
        *_overview(caches), *_jobs(caches), *_executions(), *_workflows(), *_failures(), *_operations(), *_settings(),
    ]  # fmt: skip


def _overview(caches: Caches) -> list[UiPage]:
    now = NowPage(caches.overview, caches.history)
    return [
        UiPage("/", now),
        UiPage("/search", search.search),
        UiPage("/api/docs", api_reference.operations),
        UiPage("/api/docs/{ref}", api_reference.operation),
        UiPage("/calendar", Calendar(caches.density, caches.history)),
        UiPage("/playground", Playground(caches.density)),
        UiPage("/ui/stream", Stream(now)),
        UiPage("/static/{file}", static),
    ]


def _jobs(caches: Caches) -> list[UiPage]:
    form, schedule = JobForm(caches.density), ScheduleEdit(caches.density)
    return [
        UiPage("/jobs", jobs.jobs),
        UiPage("/jobs:bulk", bulk.JOBS.page, bulk.JOBS.act, accepts=(*SELECTED, "job")),
        UiPage("/new", form.new, form.create, checks_grants=True),
        UiPage("/ui/job-preview", post=job_yaml.EDITOR.preview, checks_grants=True),
        UiPage("/new.yaml", job_yaml.EDITOR.new, job_yaml.EDITOR.create, accepts=("like",), checks_grants=True),
        UiPage("/jobs/{ref}", job.job),
        UiPage("/jobs/{ref}/chart", job_chart.chart),
        UiPage("/jobs/{ref}/ledger", job_ledger.ledger),
        UiPage("/jobs/{ref}/stats", job.stats),
        UiPage("/jobs/{ref}/why", job.why_not),
        UiPage("/jobs/{ref}/versions", job_versions.versions),
        UiPage(
            "/jobs/{ref}/rollback",
            job_versions.rollback_page,
            job_versions.rollback,
            accepts=("version",),
            checks_grants=True,
        ),
        UiPage("/jobs/{ref}/schedule", schedule.edit, schedule.save, accepts=PREVIEWED, checks_grants=True),
        UiPage("/jobs/{ref}/edit", form.edit, form.save, accepts=PREVIEWED, checks_grants=True),
        UiPage("/jobs/{ref}/yaml", job_yaml.EDITOR.edit, job_yaml.EDITOR.save, accepts=(), checks_grants=True),
        UiPage("/jobs/{ref}/run", run_form.form, run_form.run, accepts=run_form.ACCEPTS, checks_grants=True),
        UiPage(
            "/jobs/{ref}/pause",
            confirmations.PAUSE.page,
            confirmations.PAUSE.act,
            accepts=("back", "reason", "until"),
            checks_grants=True,
        ),
        UiPage(
            "/jobs/{ref}/resume",
            confirmations.RESUME.page,
            confirmations.RESUME.act,
            accepts=("back",),
            checks_grants=True,
        ),
        UiPage(
            "/jobs/{ref}/delete",
            confirmations.DELETE.page,
            confirmations.DELETE.act,
            accepts=("back", "reason"),
            checks_grants=True,
        ),
        UiPage("/triggers", triggers.triggers, triggers.create),
        UiPage("/triggers/{ref}", triggers.trigger),
        UiPage("/triggers/{ref}/pause", post=triggers.pause),
        UiPage("/triggers/{ref}/resume", post=triggers.resume),
        UiPage("/triggers/{ref}/rotate", post=triggers.rotate),
        UiPage("/triggers/{ref}/delete", post=triggers.delete),
        UiPage("/backfills/{ref}/pause", post=actions.pause_backfill),
        UiPage("/backfills/{ref}/resume", post=actions.resume_backfill),
        UiPage("/backfills/{ref}/cancel", post=actions.cancel_backfill),
    ]


def _executions() -> list[UiPage]:
    return [
        UiPage("/executions", executions.executions),
        UiPage("/executions:bulk", bulk.EXECUTIONS.page, bulk.EXECUTIONS.act, accepts=SELECTED),
        UiPage("/executions/{ref}", execution.execution),
        UiPage("/executions/{ref}/output", execution.earlier_log),
        UiPage("/executions/{ref}/output.txt", execution.download_log),
        UiPage(
            "/executions/{ref}/cancel",
            confirmations.CANCEL.page,
            confirmations.CANCEL.act,
            accepts=("back", "reason"),
            checks_grants=True,
        ),
    ]


def _workflows() -> list[UiPage]:
    return [
        UiPage("/workflows", workflows.workflows),
        UiPage("/ui/workflow-preview", post=workflow_yaml.EDITOR.preview),
        UiPage("/workflows/new", workflow_yaml.EDITOR.new, workflow_yaml.EDITOR.create, accepts=("example", "like")),
        UiPage("/workflows/{ref}", workflows.workflow),
        UiPage("/workflows/{ref}/edit", workflow_yaml.EDITOR.edit, workflow_yaml.EDITOR.save, accepts=()),
        UiPage("/workflows/{ref}/versions", workflows.versions),
        UiPage("/workflows/{ref}/rollback", post=workflows.rollback),
        UiPage("/workflows/{ref}/run", post=workflows.start),
        UiPage("/runs/{ref}", runs.run),
        UiPage(
            "/runs/{ref}/cancel",
            confirmations.CANCEL_RUN.page,
            confirmations.CANCEL_RUN.act,
            accepts=("back", "reason"),
        ),
        UiPage(
            "/runs/{ref}/rerun",
            confirmations.RERUN.page,
            confirmations.RERUN.act,
            write_scope="operate",
            accepts=("from_step", "back"),
        ),
        UiPage(
            "/runs/{ref}/decide",
            confirmations.DECIDE.page,
            confirmations.DECIDE.act,
            accepts=("step", "what", "back", "reason"),
        ),
    ]


def _failures() -> list[UiPage]:
    """Dead letters and the audit log, for callers with the scope `operate`."""
    operate = failures.SCOPE
    return [
        UiPage("/audit", audit.audit, read_scope=operate),
        UiPage("/failures", failures.failures, read_scope=operate),
        UiPage("/failures/plan", failures.replay_plan, read_scope=operate, accepts=failures.REPLAY_FIELDS),
        UiPage("/failures/{ref}", failures.failure, read_scope=operate),
        UiPage("/failures/group/replay", post=failures.replay_group, write_scope=operate),
        UiPage("/failures/group/claim", post=failures.claim_group, write_scope=operate),
        UiPage("/failures/group/dismiss", post=failures.dismiss_group, write_scope=operate),
        UiPage("/failures/{ref}/claim", post=failures.claim, write_scope=operate),
        UiPage("/failures/{ref}/release", post=failures.release, write_scope=operate),
        UiPage("/failures/{ref}/note", post=failures.note, write_scope=operate),
        UiPage("/failures/{ref}/replay", post=failures.replay, write_scope=operate),
        UiPage("/failures/{ref}/dismiss", post=failures.dismiss, write_scope=operate),
    ]


def _operations() -> list[UiPage]:
    return [
        UiPage("/queues", queues.queues),
        UiPage("/queues/duration-requests/{ref}", post=queues.decide_duration, write_scope="exceed"),
        UiPage("/queues/{ref}/pause", PAUSE_QUEUE.page, PAUSE_QUEUE.act, read_scope="admin", write_scope="admin"),
        UiPage("/queues/{ref}/resume", post=queues.resume, write_scope="admin"),
        UiPage("/workers", workers.workers),
        UiPage("/workers/{ref}", workers.worker),
        UiPage("/workers/{ref}/drain", DRAIN.page, DRAIN.act, read_scope="admin", write_scope="admin"),
        UiPage("/workers/{ref}/resume", post=workers.resume, write_scope="admin"),
        UiPage("/alerts", alerts.alerts),
        UiPage("/alerts/rules/{ref}", post=alerts.save_rule),
        UiPage("/alerts/rules/{ref}/reset", post=alerts.reset_rule),
        UiPage("/silences", post=alerts.add_silence),
        UiPage("/silences/{ref}/delete", post=alerts.end_silence),
        UiPage("/channels", alerts.channels),
        UiPage("/channels/{ref}/test", post=alerts.test_channel),
        UiPage("/channels/{ref}/enable", post=alerts.enable_channel),
        UiPage("/system", system.system, read_scope="admin"),
    ]


def _settings() -> list[UiPage]:
    return [
        UiPage("/settings", settings.settings),
        UiPage("/settings/tenants", tenants.tenants, read_scope="cluster"),
        UiPage("/settings/tenants/{ref}/suspend", post=tenants.suspend, write_scope="cluster"),
        UiPage("/settings/tenants/{ref}/resume", post=tenants.resume, write_scope="cluster"),
        UiPage("/settings/tokens", post=settings.create_token, write_scope="tokens"),
        UiPage("/settings/tokens/{ref}/revoke", post=settings.revoke_token, write_scope="tokens"),
        UiPage("/settings/sessions/end-others", post=settings.end_other_sessions, write_scope="read"),
        UiPage("/settings/sessions/{ref}/end", post=settings.end_session, write_scope="read"),
        UiPage("/settings/blackouts", post=settings.add_blackout),
        UiPage("/settings/blackouts/{ref}/end", post=settings.end_blackout),
    ]


async def static(request: PageRequest) -> Response:
    """Serve styles and scripts; the browser may keep them while their version is current."""
    found = STATIC.get(request.http.path_params["file"])
    if found is None:
        raise NotFound("there is no such file")
    kept = "private, max-age=31536000, immutable" if request.query("v") == VERSION else "no-cache"
    return Response(found[1], headers={**HEADERS, "Cache-Control": kept, "Content-Type": found[0]})
