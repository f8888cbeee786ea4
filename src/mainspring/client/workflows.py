"""Client methods for workflows and their runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from mainspring import wire
from mainspring.client.paths import Ref, deletion, path_of
from mainspring.client.transport import Connected, Params, new_key
from mainspring.domain.errors import NotFound
from mainspring.domain.workflow.spec import WorkflowSpec


class WorkflowMethods(Connected):
    async def apply_workflow(self, spec: WorkflowSpec | dict[str, Any]) -> wire.Workflow:
        """Create a workflow, or update the one with that name."""
        return await self._transport.request(wire.Workflow, "POST", "/api/v1/workflows", body=spec, creates=True)

    async def check_workflow(self, spec: WorkflowSpec | dict[str, Any]) -> wire.WorkflowOrder:
        """Validate a workflow and return the order of its steps; nothing is written."""
        params: Params = {"dry_run": "true"}
        return await self._transport.request(wire.WorkflowOrder, "POST", "/api/v1/workflows", params=params, body=spec)

    async def workflows(self, *, limit: int | None = None, cursor: str | None = None) -> wire.Page[wire.WorkflowLine]:
        params: Params = {"limit": limit, "cursor": cursor}
        return await self._transport.request(wire.Page[wire.WorkflowLine], "GET", "/api/v1/workflows", params=params)

    async def workflow(self, ref: Ref) -> wire.Workflow:
        return await self._transport.request(wire.Workflow, "GET", path_of("workflows", ref))

    async def workflow_versions(
        self, ref: Ref, *, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.WorkflowChange]:
        """List the versions of a workflow, newest first, with what each changed."""
        params: Params = {"limit": limit, "cursor": cursor}
        path = path_of("workflows", ref, "versions")
        return await self._transport.request(wire.Page[wire.WorkflowChange], "GET", path, params=params)

    async def workflow_version(self, ref: Ref, version: int) -> wire.WorkflowVersion:
        """Return one version of a workflow."""
        return await self._transport.request(
            wire.WorkflowVersion, "GET", path_of("workflows", ref, f"versions/{version}")
        )

    async def rollback_workflow(self, ref: Ref, version: int) -> wire.Workflow:
        """Restore an earlier version of a workflow as a new one."""
        body = wire.Rollback(version=version)
        return await self._transport.request(
            wire.Workflow, "POST", path_of("workflows", ref, "rollback"), body=body, creates=True
        )

    async def delete_workflow(self, ref: Ref, *, reason: str = "", detach: bool = False) -> None:
        """Delete a workflow, under the rules of `delete_job`; its runs continue."""
        await self._transport.send("DELETE", path_of("workflows", ref), params=deletion(reason, detach))

    async def start_run(
        self, ref: Ref, params: dict[str, Any] | None = None, *, key: str | None = None, reason: str | None = None
    ) -> wire.Run:
        """Start a run of a workflow now. With a `reason`, even an empty one, it is recorded in the audit log."""
        body = wire.RunRequest(params=params, key=key or new_key(), reason=reason)
        path = path_of("workflows", ref, "run")
        return await self._transport.request(wire.Run, "POST", path, body=body, repeatable=True)

    async def runs(
        self,
        *,
        workflow: str | None = None,
        states: Sequence[str] = (),
        limit: int | None = None,
        cursor: str | None = None,
    ) -> wire.Page[wire.Run]:
        params: Params = {"workflow": workflow, "state": ",".join(states) or None, "limit": limit, "cursor": cursor}
        return await self._transport.request(wire.Page[wire.Run], "GET", "/api/v1/runs", params=params)

    async def run(self, ref: Ref, *, items: bool = False) -> wire.Run:
        params: Params = {"items": "true" if items else None}
        return await self._transport.request(wire.Run, "GET", await self._run(ref), params=params)

    async def step_timeline(self, ref: Ref, step: str, *, item: int | None = None) -> wire.StepTimeline:
        """Return the events of a step in order."""
        path = await self._run(ref, f"steps/{quote(step)}")
        return await self._transport.request(wire.StepTimeline, "GET", path, params={"item": item})

    async def grid(self, workflow: Ref, *, runs: int | None = None) -> wire.Grid:
        """Return the latest runs of a workflow with the state of each step."""
        path = path_of("workflows", workflow, "grid")
        return await self._transport.request(wire.Grid, "GET", path, params={"runs": runs})

    async def cancel_run(self, ref: Ref, reason: str = "") -> wire.Run:
        body = wire.RunCancel(reason=reason)
        return await self._transport.request(wire.Run, "POST", await self._run(ref, "cancel"), body=body)

    async def rerun(self, ref: Ref, *, from_step: str | None = None) -> wire.Run:
        """Rerun from the steps that did not succeed, or from `from_step`; earlier results are kept."""
        body = wire.Rerun(from_step=from_step)
        return await self._transport.request(wire.Run, "POST", await self._run(ref, "rerun"), body=body, creates=True)

    async def send_event(self, ref: Ref, name: str, payload: Any = None) -> wire.Run:
        body = wire.RunEvent(payload=payload)
        return await self._transport.request(wire.Run, "POST", await self._run(ref, f"events/{quote(name)}"), body=body)

    async def decide(self, ref: Ref, step: str, *, approved: bool, note: str = "") -> wire.Run:
        """Approve or reject a step that waits for approval."""
        action = f"steps/{quote(step)}/{'approve' if approved else 'reject'}"
        return await self._transport.request(
            wire.Run, "POST", await self._run(ref, action), body=wire.Decision(note=note)
        )

    async def skip_step(self, ref: Ref, step: str, reason: str) -> wire.Run:
        action = f"steps/{quote(step)}/skip"
        return await self._transport.request(
            wire.Run, "POST", await self._run(ref, action), body=wire.Override(reason=reason)
        )

    async def force_complete_step(self, ref: Ref, step: str, reason: str, result: Any = None) -> wire.Run:
        body = wire.Override(reason=reason, result=result)
        action = f"steps/{quote(step)}/force-complete"
        return await self._transport.request(wire.Run, "POST", await self._run(ref, action), body=body)

    async def _run(self, ref: Ref, action: str = "") -> str:
        if ref == "@last":
            newest = (await self.runs(limit=1)).items
            if not newest:
                raise NotFound("@last: there are no runs yet")
            ref = newest[0].run_id
        return path_of("runs", ref, action)
