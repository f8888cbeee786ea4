"""The search of the top bar: whatever a name or an id means, it leads there."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from mainspring.domain.errors import Invalid, NotFound
from mainspring.views import executions as execution_views
from mainspring.views import jobs as job_views
from mainspring.views import workers as worker_views
from mainspring.web.access import Visit
from mainspring.web.pages.jobs import link
from mainspring.web.render import HEADERS


async def search(visit: Visit) -> Response:
    """GET /search?q=: to the job, workflow, execution, run or worker of that name or id; else to jobs that begin so."""
    return RedirectResponse(await _place(visit, visit.query("q")), 303, HEADERS)


async def _place(visit: Visit, text: str) -> str:
    database, tenant = visit.context.database, visit.caller.tenant
    try:
        found = await job_views.get(database, text, tenant=tenant)
        return f"/{'workflows' if found.spec.kind == 'workflow' else 'jobs'}/{found.job_id}"
    except NotFound:
        pass
    try:
        execution = await execution_views.get(database, text, tenant=tenant)
        run_id = await visit.context.run_views.run_of_execution(execution.execution_id, tenant=tenant)
        is_run = run_id == execution.execution_id
        return f"/{'runs' if is_run else 'executions'}/{execution.execution_id}"
    except (NotFound, Invalid):
        pass
    for worker in await worker_views.list_workers(database, tenant=tenant):
        if worker.name == text:
            return f"/workers/{worker.worker_id}"
    return link("/jobs", prefix=text)
