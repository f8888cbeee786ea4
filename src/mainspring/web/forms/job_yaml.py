"""The editor of a job as YAML."""

from __future__ import annotations

from typing import Any

from mainspring import wire
from mainspring.codec import decode, encode
from mainspring.domain.job import JobSpec
from mainspring.intake import jobs
from mainspring.manifest import job_in, write_job
from mainspring.views import jobs as job_views
from mainspring.views import schedules as schedule_views
from mainspring.web.draw.diff import DiffLine, difference
from mainspring.web.endpoint import PageRequest
from mainspring.web.forms import command_line
from mainspring.web.forms.job_form import Review, changeable_job, review_of
from mainspring.web.forms.yaml_editor import YamlDraft, YamlEditor
from mainspring.web.forms.yaml_keys import known_keys
from mainspring.web.forms.yaml_reading import documents_of

EXAMPLE = """\
kind: Job
metadata: {name: nightly-report, team: finance}
spec:
  task: {kind: shell, argv: [./report.sh, --all]}
  schedule: {cron: "0 2 * * *", timezone: Europe/Berlin}
  retries: {max: 3, base: 10s}
  timeout: 10m
"""


class JobYamlEditor(YamlEditor[wire.Job, Review]):
    """GET and POST /new.yaml and /jobs/{ref}/yaml."""

    template = "job_yaml.html"
    new_path = "/new.yaml"
    list_path = "/jobs"
    edit_suffix = "yaml"
    preview_template = "job_preview.html"

    def page_values(self) -> dict[str, Any]:
        return {"keys": known_keys("Job")}

    async def preview_values(self, request: PageRequest, review: Review) -> dict[str, Any]:
        """Return the schedule in words with its next fires."""
        if (schedule := review.spec.schedule) is None:
            return {"schedule": None}
        wanted = wire.PreviewRequest(schedule=schedule, job=review.spec.name)
        return {
            "schedule": await schedule_views.preview(request.context.database, wanted, tenant=request.caller.tenant)
        }

    async def initial_text(self, request: PageRequest) -> str:
        return EXAMPLE

    async def find(self, request: PageRequest, ref: str) -> wire.Job:
        return await changeable_job(request, ref)

    def write(self, saved: wire.Job) -> str:
        values = command_line.without_defaults(saved.spec)
        return write_job({name: value for name, value in values.items() if name != "paused"})

    async def changes_since(self, request: PageRequest, saved: wire.Job, version: int) -> list[DiffLine]:
        before = await job_views.version_of(
            request.context.database, saved.job_id, version, tenant=request.caller.tenant
        )
        return difference(before, saved.spec)

    async def review(self, request: PageRequest, draft: YamlDraft[wire.Job, Review]) -> Review:
        # Encoded and decoded like a request to the API, which refuses what the database can't store.
        spec = decode(encode(job_in(await documents_of(draft.text))), JobSpec)
        return await review_of(request, draft.saved, spec)

    async def apply(self, request: PageRequest, draft: YamlDraft[wire.Job, Review], review: Review) -> str:
        database, tenant, by = request.context.database, request.caller.tenant, request.caller.name
        if draft.saved is None:
            job_id = await jobs.create(database, review.spec, tenant=tenant, by=by)
            return f"/jobs/{job_id}"
        if review.proposal is not None and review.proposal.patch:
            job_id, patch = draft.saved.job_id, review.proposal.patch
            await jobs.patch(database, job_id, patch, tenant=tenant, by=by, seen=draft.version)
        return f"/jobs/{draft.saved.job_id}"


EDITOR = JobYamlEditor()
