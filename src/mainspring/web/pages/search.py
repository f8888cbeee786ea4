"""The search of the top bar: redirect to what a name or id means."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from mainspring.domain.errors import Invalid, NotFound
from mainspring.views import executions as execution_views
from mainspring.views import jobs as job_views
from mainspring.views import workers as worker_views
from mainspring.web.endpoint import PageRequest
from mainspring.web.render import HEADERS
from mainspring.web.urls import link


async def search(request: PageRequest) -> Response:
    """GET /search?q=: go to the job, workflow, execution, run or worker, else to jobs whose name starts with it."""
    return RedirectResponse(await _path_of(request, request.query("q")), 303, HEADERS)


async def _path_of(request: PageRequest, text: str) -> str:
    database, tenant = request.context.database, request.caller.tenant
    try:
        found = await job_views.get(database, text, tenant=tenant)
        return f"/{'workflows' if found.spec.kind == 'workflow' else 'jobs'}/{found.job_id}"
    except NotFound:
        pass
    try:
        execution = await execution_views.get(database, text, tenant=tenant)
        run_id = await request.context.run_views.run_of_execution(execution.execution_id, tenant=tenant)
        is_run = run_id == execution.execution_id
        return f"/{'runs' if is_run else 'executions'}/{execution.execution_id}"
    except (NotFound, Invalid):
        pass
    for worker in await worker_views.list_workers(database, tenant=tenant):
        if worker.name == text:
            return f"/workers/{worker.worker_id}"
    return link("/jobs", prefix=text)
