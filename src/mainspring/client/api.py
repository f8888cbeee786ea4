"""The API as coroutines: one method per route, plus waiting and following."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.client.discovery import Server, discover
from mainspring.client.problems import Unreachable, WaitTimedOut
from mainspring.client.transport import Params, Patience, Transport
from mainspring.domain.alert import Rule
from mainspring.domain.dead_letter import DeadLetterState
from mainspring.domain.errors import NotFound, Unavailable
from mainspring.domain.execution import FINAL, State
from mainspring.domain.job import JobSpec
from mainspring.domain.workflow.spec import WorkflowSpec

Ref = str | UUID
"""A job's name or id; an execution's or a run's id, the unique beginning of one, or `@last`."""

LONG_POLL_S = 30.0
_DEAD_LETTERS = "/api/v1/dead-letters"


class AsyncClient:
    """Talks to one server; without arguments to the one `discover` finds. Use it as `async with`."""

    def __init__(self, url: str | None = None, token: str | None = None, *, server: Server | None = None) -> None:
        self.server = server or discover(url, token)
        self._transport = Transport(self.server)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._transport.aclose()

    # Jobs

    async def create_job(self, spec: JobSpec | dict[str, Any]) -> wire.Job:
        """Adds a job; what a dictionary leaves out gets the defaults of the server."""
        return await self._transport.ask(wire.Job, "POST", "/api/v1/jobs", body=spec)

    async def jobs(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        prefix: str | None = None,
        filter: str | None = None,
    ) -> wire.Page[wire.Job]:
        params: Params = {"limit": limit, "cursor": cursor, "prefix": prefix, "filter": filter}
        return await self._transport.ask(wire.Page[wire.Job], "GET", "/api/v1/jobs", params=params)

    async def job(self, ref: Ref) -> wire.Job:
        return await self._transport.ask(wire.Job, "GET", _job(ref))

    async def patch_job(self, ref: Ref, patch: dict[str, Any]) -> wire.Job:
        """Changes what `patch` names (RFC 7396): null takes a field back to its default."""
        return await self._transport.ask(wire.Job, "PATCH", _job(ref), body=patch)

    async def delete_job(self, ref: Ref, *, reason: str = "", detach: bool = False) -> None:
        """Deletes a job. One that others need stays, unless they are to go on without it (`detach`)."""
        await self._transport.send("DELETE", _job(ref), params=_deletion(reason, detach))

    async def needs(self, ref: Ref) -> wire.Dependencies:
        """What a job needs and whether it is met, and the order of all that hang together with it."""
        return await self._transport.ask(wire.Dependencies, "GET", _job(ref, "dependencies"))

    async def add_need(
        self, ref: Ref, parent: str, *, timeout: str | float | None = None, wait: str | float | None = None
    ) -> wire.Dependencies:
        """Executes a job when another has succeeded too. Older successes than `timeout` do not count; fires of a job
        with a schedule wait for it, at most `wait`. A cycle is refused and named."""
        body = wire.NewDependency(job=parent, timeout=timeout, wait=wait)
        return await self._transport.ask(wire.Dependencies, "POST", _job(ref, "dependencies"), body=body)

    async def remove_need(self, ref: Ref, parent: Ref) -> None:
        """The job does not need the other any more; a fire that waited for nothing else goes on."""
        await self._transport.send("DELETE", _job(ref, f"dependencies/{quote(str(parent), safe='')}"))

    async def pause_job(self, ref: Ref, reason: str = "", *, until: datetime | None = None) -> wire.Job:
        """No fires until someone resumes it, or until `until` by itself."""
        body = wire.Pause(reason=reason, until=until)
        return await self._transport.ask(wire.Job, "POST", _job(ref, "pause"), body=body)

    async def resume_job(self, ref: Ref, *, catch_up: bool = False) -> wire.Job:
        """Fires again from now on; with `catch_up` the misfire policy applies to what came due during the pause."""
        body = wire.Resume(catch_up=catch_up)
        return await self._transport.ask(wire.Job, "POST", _job(ref, "resume"), body=body)

    async def trigger(self, ref: Ref, request: wire.RunNow | None = None) -> wire.Execution:
        """Runs a job now, or when `request` says; the same `request.key` gives the same execution."""
        body = request or wire.RunNow()
        return await self._transport.ask(wire.Execution, "POST", _job(ref, "trigger"), body=body)

    async def fires(self, ref: Ref, *, count: int = 10, after: datetime | None = None) -> wire.Fires:
        params: Params = {"count": count, "after": None if after is None else after.isoformat()}
        return await self._transport.ask(wire.Fires, "GET", _job(ref, "fires"), params=params)

    async def history(
        self, ref: Ref, *, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.Execution]:
        """The executions of one job, newest first."""
        params: Params = {"limit": limit, "cursor": cursor}
        path = _job(ref, "executions")
        return await self._transport.ask(wire.Page[wire.Execution], "GET", path, params=params)

    async def ledger(
        self, ref: Ref, *, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.LedgerEntry]:
        """What became of each due instant of a job, newest first."""
        params: Params = {"limit": limit, "cursor": cursor}
        return await self._transport.ask(wire.Page[wire.LedgerEntry], "GET", _job(ref, "ledger"), params=params)

    async def versions(
        self, ref: Ref, *, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.Version]:
        """Every version of a job, newest first."""
        params: Params = {"limit": limit, "cursor": cursor}
        return await self._transport.ask(wire.Page[wire.Version], "GET", _job(ref, "versions"), params=params)

    async def rollback(self, ref: Ref, version: int) -> wire.Job:
        """Brings an earlier version back, as a new one."""
        body = wire.Rollback(version=version)
        return await self._transport.ask(wire.Job, "POST", _job(ref, "rollback"), body=body)

    async def try_patch(self, ref: Ref, patch: dict[str, Any]) -> wire.Change:
        """What `patch_job` would do, without doing it."""
        params: Params = {"dry_run": "true"}
        return await self._transport.ask(wire.Change, "PATCH", _job(ref), body=patch, params=params)

    async def preview(self, request: wire.PreviewRequest) -> wire.Preview:
        """What a schedule means: a sentence, its next fires, and anything unusual."""
        return await self._transport.ask(wire.Preview, "POST", "/api/v1/schedules:preview", body=request)

    # Backfills

    async def start_backfill(self, ref: Ref, request: wire.BackfillRequest) -> wire.Backfill:
        """Executes a range of a job's past instants."""
        return await self._transport.ask(wire.Backfill, "POST", _job(ref, "backfill"), body=request)

    async def plan_backfill(self, ref: Ref, request: wire.BackfillRequest) -> wire.BackfillPlan:
        """What `start_backfill` would do, without doing it."""
        body = msgspec.structs.replace(request, dry_run=True)
        return await self._transport.ask(wire.BackfillPlan, "POST", _job(ref, "backfill"), body=body)

    async def backfills(
        self, *, job: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.Backfill]:
        params: Params = {"job": job, "limit": limit, "cursor": cursor}
        return await self._transport.ask(wire.Page[wire.Backfill], "GET", "/api/v1/backfills", params=params)

    async def backfill(self, backfill_id: Ref) -> wire.Backfill:
        """One backfill, with how many of its executions are in which state."""
        return await self._transport.ask(wire.Backfill, "GET", _path("backfills", backfill_id, ""))

    async def pause_backfill(self, backfill_id: Ref) -> wire.Backfill:
        return await self._transport.ask(wire.Backfill, "POST", _path("backfills", backfill_id, "pause"))

    async def resume_backfill(self, backfill_id: Ref) -> wire.Backfill:
        return await self._transport.ask(wire.Backfill, "POST", _path("backfills", backfill_id, "resume"))

    async def cancel_backfill(self, backfill_id: Ref) -> wire.Backfill:
        """Ends it, and cancels what lives of it."""
        return await self._transport.ask(wire.Backfill, "POST", _path("backfills", backfill_id, "cancel"))

    # Calendars and blackouts

    async def calendars(self, *, limit: int | None = None, cursor: str | None = None) -> wire.Page[wire.Calendar]:
        params: Params = {"limit": limit, "cursor": cursor}
        return await self._transport.ask(wire.Page[wire.Calendar], "GET", "/api/v1/calendars", params=params)

    async def calendar(self, name: str) -> wire.Calendar:
        return await self._transport.ask(wire.Calendar, "GET", _path("calendars", name, ""))

    async def put_calendar(self, name: str, days: wire.CalendarDays) -> wire.Calendar:
        """Writes a calendar; every job that follows it does so from now on."""
        return await self._transport.ask(wire.Calendar, "PUT", _path("calendars", name, ""), body=days)

    async def try_calendar(self, name: str, days: wire.CalendarDays) -> wire.CalendarChange:
        """What `put_calendar` would do, without doing it."""
        params: Params = {"dry_run": "true"}
        path = _path("calendars", name, "")
        return await self._transport.ask(wire.CalendarChange, "PUT", path, body=days, params=params)

    async def delete_calendar(self, name: str) -> None:
        await self._transport.send("DELETE", _path("calendars", name, ""))

    async def calendar_versions(
        self, name: str, *, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.CalendarVersion]:
        """Every version of a calendar, newest first."""
        params: Params = {"limit": limit, "cursor": cursor}
        path = _path("calendars", name, "versions")
        return await self._transport.ask(wire.Page[wire.CalendarVersion], "GET", path, params=params)

    async def closed_days(self, name: str, *, count: int = 90) -> wire.ClosedDays:
        """The days ahead on which schedules that follow a calendar do not fire."""
        params: Params = {"count": count}
        return await self._transport.ask(wire.ClosedDays, "GET", _path("calendars", name, "days"), params=params)

    async def scaling(self, *, target: float | None = None) -> wire.Scaling:
        """Of each queue, what waits and runs, and how many slots would be in use to `target` with that."""
        return await self._transport.ask(
            wire.Scaling, "GET", "/api/v1/scaling", params={"target": None if target is None else str(target)}
        )

    async def reservations(self) -> wire.Page[wire.Reservation]:
        return await self._transport.ask(wire.Page[wire.Reservation], "GET", "/api/v1/reservations")

    async def add_reservation(self, reservation: wire.NewReservation) -> wire.Reservation:
        """Keeps places on workers free; its `warnings` say what may still be in the way."""
        return await self._transport.ask(wire.Reservation, "POST", "/api/v1/reservations", body=reservation)

    async def delete_reservation(self, name: str) -> None:
        await self._transport.send("DELETE", _path("reservations", name, ""))

    async def blackouts(self, *, limit: int | None = None, cursor: str | None = None) -> wire.Page[wire.Blackout]:
        params: Params = {"limit": limit, "cursor": cursor}
        return await self._transport.ask(wire.Page[wire.Blackout], "GET", "/api/v1/blackouts", params=params)

    async def add_blackout(self, blackout: wire.NewBlackout) -> wire.Blackout:
        """Adds a window in which no fire starts."""
        return await self._transport.ask(wire.Blackout, "POST", "/api/v1/blackouts", body=blackout)

    async def delete_blackout(self, blackout_id: UUID) -> None:
        await self._transport.send("DELETE", _path("blackouts", blackout_id, ""))

    # Alerts and channels

    async def alerts(
        self, *, state: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.Alert]:
        params: Params = {"state": state, "limit": limit, "cursor": cursor}
        return await self._transport.ask(wire.Page[wire.Alert], "GET", "/api/v1/alerts", params=params)

    async def alert_rules(self) -> wire.Page[wire.AlertRule]:
        return await self._transport.ask(wire.Page[wire.AlertRule], "GET", "/api/v1/alert-rules")

    async def put_alert_rule(self, name: str, rule: Rule) -> wire.AlertRule:
        """Writes a rule, in place of a built-in one if it has its name."""
        return await self._transport.ask(wire.AlertRule, "PUT", _path("alert-rules", name, ""), body=rule)

    async def delete_alert_rule(self, name: str) -> None:
        await self._transport.send("DELETE", _path("alert-rules", name, ""))

    async def silences(self) -> wire.Page[wire.Silence]:
        return await self._transport.ask(wire.Page[wire.Silence], "GET", "/api/v1/silences")

    async def add_silence(self, silence: wire.NewSilence) -> wire.Silence:
        return await self._transport.ask(wire.Silence, "POST", "/api/v1/silences", body=silence)

    async def delete_silence(self, silence_id: UUID) -> None:
        await self._transport.send("DELETE", _path("silences", silence_id, ""))

    async def channels(self) -> wire.Page[wire.Channel]:
        return await self._transport.ask(wire.Page[wire.Channel], "GET", "/api/v1/channels")

    async def channel(self, name: str) -> wire.Channel:
        return await self._transport.ask(wire.Channel, "GET", _path("channels", name, ""))

    async def add_channel(self, channel: wire.NewChannel) -> wire.Channel:
        """Adds a channel; a webhook's signing secret, if the server made it, is in the answer only now."""
        return await self._transport.ask(wire.Channel, "POST", "/api/v1/channels", body=channel)

    async def put_channel(self, name: str, channel: wire.ChannelSpec) -> wire.Channel:
        """Writes a channel anew; secrets that are left out stay as they were."""
        return await self._transport.ask(wire.Channel, "PUT", _path("channels", name, ""), body=channel)

    async def delete_channel(self, name: str) -> None:
        await self._transport.send("DELETE", _path("channels", name, ""))

    async def test_channel(self, name: str) -> wire.ChannelTest:
        """Sends a test message and says what the receiver answered."""
        path = _path("channels", name, "test")
        return await self._transport.ask(wire.ChannelTest, "POST", path, wait_s=60.0)

    async def enable_channel(self, name: str) -> wire.Channel:
        return await self._transport.ask(wire.Channel, "POST", _path("channels", name, "enable"))

    async def deliveries(
        self,
        *,
        channel: str | None = None,
        state: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> wire.Page[wire.Delivery]:
        params: Params = {"channel": channel, "state": state, "limit": limit, "cursor": cursor}
        return await self._transport.ask(wire.Page[wire.Delivery], "GET", "/api/v1/deliveries", params=params)

    # Executions

    async def events(self, ref: Ref) -> wire.Page[wire.LifecycleEvent]:
        """What happened to an execution, in order."""
        path = await self._execution(ref, "events")
        return await self._transport.ask(wire.Page[wire.LifecycleEvent], "GET", path)

    async def submit(self, items: Sequence[wire.BatchItem]) -> wire.BatchAnswer:
        """Triggers up to 1,000 executions at once; the answers are in the order of `items`."""
        body = wire.Batch(items=list(items))
        return await self._transport.ask(wire.BatchAnswer, "POST", "/api/v1/executions:batch", body=body)

    async def executions(
        self,
        *,
        job: str | None = None,
        state: Sequence[State] = (),
        limit: int | None = None,
        cursor: str | None = None,
        filter: str | None = None,
    ) -> wire.Page[wire.Execution]:
        params: Params = {"job": job, "state": list(state), "limit": limit, "cursor": cursor, "filter": filter}
        return await self._transport.ask(wire.Page[wire.Execution], "GET", "/api/v1/executions", params=params)

    async def execution(self, ref: Ref, *, wait_s: float = 0.0) -> wire.Execution:
        """One execution: as it is now, or once it is final or `wait_s` have passed."""
        params: Params = {"wait": f"{wait_s:g}s" if wait_s else None}
        path = await self._execution(ref)
        return await self._transport.ask(wire.Execution, "GET", path, params=params, wait_s=wait_s)

    async def cancel(self, ref: Ref, reason: str = "") -> wire.Execution:
        path = await self._execution(ref, "cancel")
        return await self._transport.ask(wire.Execution, "POST", path, body=wire.Cancel(reason=reason))

    async def logs(self, ref: Ref, *, place: str = "") -> wire.Logs:
        """The next piece of output after `place`; the beginning without one."""
        path = await self._execution(ref, "logs")
        return await self._transport.ask(wire.Logs, "GET", path, params={"place": place})

    async def follow_logs(self, ref: Ref) -> AsyncGenerator[wire.LogChunk, None]:
        """All output, live, until the execution is final. Survives a restart of the server."""
        async with contextlib.aclosing(self.follow(ref)) as news:
            async for item in news:
                if isinstance(item, wire.LogChunk):
                    yield item

    async def follow(self, ref: Ref) -> AsyncGenerator[wire.LogChunk | wire.Progress, None]:
        """All output and progress, live, until the execution is final. Survives a restart of the server."""
        path, place, patience = await self._execution(ref, "logs"), "", Patience()
        while True:
            try:
                params: Params = {"follow": "true", "place": place}
                async with self._transport.events(path, params=params, after=place) as events:
                    patience.met()
                    async for event in events:
                        if event.event == "end":
                            return
                        place = event.id or place
                        if event.event == "chunk":
                            yield self._transport.read(wire.LogChunk, event.data)
                        elif event.event == "progress":
                            yield self._transport.read(wire.Progress, event.data)
                await patience.pause(Unreachable(self.server, "the stream of output ended too early"))
            except Unavailable as error:
                await patience.pause(error)

    async def artifacts(self, ref: Ref) -> wire.Page[wire.Artifact]:
        """The files that an execution has left."""
        return await self._transport.ask(wire.Page[wire.Artifact], "GET", await self._execution(ref, "artifacts"))

    async def artifact(self, ref: Ref, name: str) -> AsyncGenerator[bytes, None]:
        """One of them, piece by piece."""
        path = await self._execution(ref, "artifacts/content")
        async with self._transport.pieces(path, params={"name": name}) as pieces:
            async for piece in pieces:
                yield piece

    async def wait(self, ref: Ref, *, timeout_s: float = math.inf) -> wire.Execution:
        """The execution once it is final; raises `WaitTimedOut` after `timeout_s`."""
        until = asyncio.get_running_loop().time() + timeout_s
        execution, patience = await self.execution(ref), Patience()
        patience.met()
        while execution.state not in FINAL:
            left = until - asyncio.get_running_loop().time()
            if left <= 0:
                raise WaitTimedOut(execution)
            try:
                execution = await self._poll(execution.execution_id, min(left, LONG_POLL_S))
                patience.met()
            except Unavailable as error:
                await patience.pause(error)
        return execution

    # Dead letters

    async def dead_letters(
        self,
        *,
        job: str | None = None,
        fingerprint: str | None = None,
        state: Sequence[DeadLetterState] = (),
        limit: int | None = None,
        cursor: str | None = None,
    ) -> wire.Page[wire.DeadLetter]:
        """Executions that failed or were lost for good, newest fire first."""
        params: Params = {
            "job": job,
            "fingerprint": fingerprint,
            "state": list(state),
            "limit": limit,
            "cursor": cursor,
        }
        return await self._transport.ask(wire.Page[wire.DeadLetter], "GET", _DEAD_LETTERS, params=params)

    async def dead_letter_groups(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.DeadLetterGroup]:
        """What is open, by job and fingerprint of the error."""
        params: Params = {"limit": limit, "cursor": cursor}
        path = _DEAD_LETTERS + ":groups"
        return await self._transport.ask(wire.Page[wire.DeadLetterGroup], "GET", path, params=params)

    async def dead_letter(self, ref: Ref) -> wire.DeadLetter:
        return await self._transport.ask(wire.DeadLetter, "GET", _path("dead-letters", ref, ""))

    async def claim_dead_letter(self, ref: Ref, *, for_: str | int | float = "10m") -> wire.DeadLetter:
        """Nobody else can change it for that time."""
        path, body = _path("dead-letters", ref, "claim"), wire.DeadLetterClaimOne(for_=for_)
        return await self._transport.ask(wire.DeadLetter, "POST", path, body=body)

    async def claim_dead_letters(self, request: wire.DeadLetterClaim | None = None) -> wire.Page[wire.DeadLetter]:
        """The oldest that nobody has claimed."""
        body = request or wire.DeadLetterClaim()
        return await self._transport.ask(wire.Page[wire.DeadLetter], "POST", _DEAD_LETTERS + ":claim", body=body)

    async def release_dead_letter(self, ref: Ref) -> wire.DeadLetter:
        return await self._transport.ask(wire.DeadLetter, "POST", _path("dead-letters", ref, "release"))

    async def edit_dead_letter(self, ref: Ref, edit: wire.DeadLetterEdit) -> wire.DeadLetter:
        """Writes a note, or the parameters that a replay is given."""
        return await self._transport.ask(wire.DeadLetter, "PATCH", _path("dead-letters", ref, ""), body=edit)

    async def replay_dead_letter(self, ref: Ref, request: wire.ReplayOne | None = None) -> wire.Replay:
        """Makes an execution of it; asked for again, the same one."""
        path, body = _path("dead-letters", ref, "replay"), request or wire.ReplayOne()
        return await self._transport.ask(wire.Replay, "POST", path, body=body)

    async def replay_dead_letters(self, request: wire.ReplayMany) -> wire.Replay:
        """Many: at a rate, after a canary, or only as a plan."""
        return await self._transport.ask(wire.Replay, "POST", _DEAD_LETTERS + ":replay", body=request)

    async def dismiss_dead_letter(self, ref: Ref, reason: str) -> wire.DeadLetter:
        path, body = _path("dead-letters", ref, "dismiss"), wire.Dismiss(reason=reason)
        return await self._transport.ask(wire.DeadLetter, "POST", path, body=body)

    async def dismiss_dead_letters(self, request: wire.DismissMany) -> wire.Dismissed:
        return await self._transport.ask(wire.Dismissed, "POST", _DEAD_LETTERS + ":dismiss", body=request)

    # Workflows and runs

    async def apply_workflow(self, spec: WorkflowSpec | dict[str, Any]) -> wire.Workflow:
        """Adds a workflow, or makes the one of that name like this."""
        return await self._transport.ask(wire.Workflow, "POST", "/api/v1/workflows", body=spec)

    async def check_workflow(self, spec: WorkflowSpec | dict[str, Any]) -> wire.WorkflowOrder:
        """Whether a workflow is right, and in which order its steps can be executed; writes nothing."""
        params: Params = {"dry_run": "true"}
        return await self._transport.ask(wire.WorkflowOrder, "POST", "/api/v1/workflows", params=params, body=spec)

    async def workflows(self, *, limit: int | None = None, cursor: str | None = None) -> wire.Page[wire.WorkflowLine]:
        params: Params = {"limit": limit, "cursor": cursor}
        return await self._transport.ask(wire.Page[wire.WorkflowLine], "GET", "/api/v1/workflows", params=params)

    async def workflow(self, ref: Ref) -> wire.Workflow:
        return await self._transport.ask(wire.Workflow, "GET", _path("workflows", ref, ""))

    async def workflow_versions(
        self, ref: Ref, *, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.WorkflowChange]:
        """The versions of a workflow, newest first, and what each changed."""
        params: Params = {"limit": limit, "cursor": cursor}
        path = _path("workflows", ref, "versions")
        return await self._transport.ask(wire.Page[wire.WorkflowChange], "GET", path, params=params)

    async def workflow_version(self, ref: Ref, version: int) -> wire.WorkflowVersion:
        """What one version of a workflow says."""
        return await self._transport.ask(wire.WorkflowVersion, "GET", _path("workflows", ref, f"versions/{version}"))

    async def rollback_workflow(self, ref: Ref, version: int) -> wire.Workflow:
        """Brings an earlier version of a workflow back, as a new one."""
        body = wire.Rollback(version=version)
        return await self._transport.ask(wire.Workflow, "POST", _path("workflows", ref, "rollback"), body=body)

    async def delete_workflow(self, ref: Ref, *, reason: str = "", detach: bool = False) -> None:
        """Deletes a workflow, as `delete_job`; its runs go on."""
        await self._transport.send("DELETE", _path("workflows", ref, ""), params=_deletion(reason, detach))

    async def start_run(
        self, ref: Ref, params: dict[str, Any] | None = None, *, key: str | None = None, reason: str | None = None
    ) -> wire.Run:
        """Starts a run of a workflow now. With a reason, which may be empty, the audit tells of it."""
        body = wire.RunRequest(params=params, key=key, reason=reason)
        return await self._transport.ask(wire.Run, "POST", _path("workflows", ref, "run"), body=body)

    async def runs(
        self,
        *,
        workflow: str | None = None,
        states: Sequence[str] = (),
        limit: int | None = None,
        cursor: str | None = None,
    ) -> wire.Page[wire.Run]:
        params: Params = {"workflow": workflow, "state": ",".join(states) or None, "limit": limit, "cursor": cursor}
        return await self._transport.ask(wire.Page[wire.Run], "GET", "/api/v1/runs", params=params)

    async def run(self, ref: Ref, *, items: bool = False) -> wire.Run:
        params: Params = {"items": "true" if items else None}
        return await self._transport.ask(wire.Run, "GET", await self._run(ref, ""), params=params)

    async def step_timeline(self, ref: Ref, step: str, *, item: int | None = None) -> wire.StepTimeline:
        """What happened to a step, in order."""
        path = await self._run(ref, f"steps/{quote(step)}")
        return await self._transport.ask(wire.StepTimeline, "GET", path, params={"item": item})

    async def grid(self, workflow: Ref, *, runs: int | None = None) -> wire.Grid:
        """The last runs of a workflow, with the state of each step."""
        path = _path("workflows", workflow, "grid")
        return await self._transport.ask(wire.Grid, "GET", path, params={"runs": runs})

    async def cancel_run(self, ref: Ref, reason: str = "") -> wire.Run:
        body = wire.RunCancel(reason=reason)
        return await self._transport.ask(wire.Run, "POST", await self._run(ref, "cancel"), body=body)

    async def rerun(self, ref: Ref, *, from_step: str | None = None) -> wire.Run:
        """Repeats a run from what did not succeed, or from a step on; earlier results are kept."""
        body = wire.Rerun(from_step=from_step)
        return await self._transport.ask(wire.Run, "POST", await self._run(ref, "rerun"), body=body)

    async def send_event(self, ref: Ref, name: str, payload: Any = None) -> wire.Run:
        body = wire.RunEvent(payload=payload)
        return await self._transport.ask(wire.Run, "POST", await self._run(ref, f"events/{quote(name)}"), body=body)

    async def decide(self, ref: Ref, step: str, *, approved: bool, note: str = "") -> wire.Run:
        """Answers the approval that a step waits for."""
        action = f"steps/{quote(step)}/{'approve' if approved else 'reject'}"
        return await self._transport.ask(wire.Run, "POST", await self._run(ref, action), body=wire.Decision(note=note))

    async def skip_step(self, ref: Ref, step: str, reason: str) -> wire.Run:
        action = f"steps/{quote(step)}/skip"
        return await self._transport.ask(
            wire.Run, "POST", await self._run(ref, action), body=wire.Override(reason=reason)
        )

    async def force_complete_step(self, ref: Ref, step: str, reason: str, result: Any = None) -> wire.Run:
        body = wire.Override(reason=reason, result=result)
        action = f"steps/{quote(step)}/force-complete"
        return await self._transport.ask(wire.Run, "POST", await self._run(ref, action), body=body)

    # Jobs that need others

    async def force_complete_job(self, ref: Ref, reason: str) -> wire.Job:
        """Lets the jobs that need this one go as if it had succeeded."""
        body = wire.Release(reason=reason)
        return await self._transport.ask(wire.Job, "POST", _path("jobs", ref, "force-complete"), body=body)

    async def skip_job(self, ref: Ref, reason: str) -> wire.Job:
        """Lets the jobs that need this one go without it."""
        return await self._transport.ask(wire.Job, "POST", _path("jobs", ref, "skip"), body=wire.Release(reason=reason))

    # The rest

    async def audit(
        self,
        *,
        subject: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> wire.Page[wire.AuditEntry]:
        """Who did what and why, newest first."""
        params: Params = {"subject": subject, "actor": actor, "action": action, "limit": limit, "cursor": cursor}
        return await self._transport.ask(wire.Page[wire.AuditEntry], "GET", "/api/v1/audit", params=params)

    async def feed(self) -> AsyncGenerator[wire.Execution, None]:
        """Each execution as it starts and as it ends, from now on; once connected, it reconnects for ever."""
        patience, last = Patience(give_up_s=math.inf), ""
        while True:
            try:
                async with self._transport.events("/api/v1/stream", after=last) as events:
                    patience.met()
                    async for event in events:
                        last = event.id or last
                        if event.event == "execution":
                            yield self._transport.read(wire.Execution, event.data)
                await patience.pause(Unreachable(self.server, "the stream ended"))
            except Unavailable as error:
                await patience.pause(error)

    async def queues(self) -> wire.Queues:
        """Every queue with what waits and runs, and the limits in use."""
        return await self._transport.ask(wire.Queues, "GET", "/api/v1/queues")

    async def set_queue(self, name: str, changes: dict[str, Any]) -> wire.Queue:
        """Changes what `changes` names; null takes a setting back to its default."""
        return await self._transport.ask(wire.Queue, "PATCH", _path("queues", name, ""), body=changes)

    async def why(self, ref: Ref) -> wire.Why:
        """Why an execution does not run yet."""
        return await self._transport.ask(wire.Why, "GET", await self._execution(ref, "why"))

    async def why_job(self, ref: Ref) -> wire.Why:
        """Why a job's next execution does not run yet."""
        return await self._transport.ask(wire.Why, "GET", _job(ref, "why"))

    async def workers(self) -> wire.Page[wire.Worker]:
        return await self._transport.ask(wire.Page[wire.Worker], "GET", "/api/v1/workers")

    async def shards(self) -> wire.Shards:
        """The scheduler processes, and who owns which shard."""
        return await self._transport.ask(wire.Shards, "GET", "/api/v1/system/shards")

    async def doctor(self, *, everything: bool = False) -> wire.Diagnosis:
        """Asks the server whether it keeps its promises, to the newest executions or to all there are."""
        params = {"all": "true"} if everything else None
        wait_s = 600.0 if everything else 0.0
        return await self._transport.ask(wire.Diagnosis, "GET", "/api/v1/doctor", params=params, wait_s=wait_s)

    async def login_link(self) -> wire.LoginLink:
        """A link that signs a browser in for a while; its path belongs behind the server's address."""
        return await self._transport.ask(wire.LoginLink, "POST", "/api/v1/login-links")

    async def _poll(self, execution_id: UUID, wait_s: float) -> wire.Execution:
        """Waits even if the server does not, as one that is about to stop answers at once."""
        loop = asyncio.get_running_loop()
        earliest = loop.time() + min(wait_s, 0.2)
        execution = await self.execution(execution_id, wait_s=wait_s)
        if execution.state not in FINAL:
            await asyncio.sleep(earliest - loop.time())
        return execution

    async def _run(self, ref: Ref, action: str) -> str:
        if ref == "@last":
            newest = (await self.runs(limit=1)).items
            if not newest:
                raise NotFound("@last: there are no runs yet")
            ref = newest[0].run_id
        return _path("runs", ref, action)

    async def _execution(self, ref: Ref, action: str = "") -> str:
        if ref == "@last":
            newest = (await self.executions(limit=1)).items
            if not newest:
                raise NotFound("@last: there are no executions yet")
            ref = newest[0].execution_id
        return _path("executions", ref, action)


def _deletion(reason: str, detach: bool) -> Params:
    return {"reason": reason or None, "cascade": "detach" if detach else None}


def _job(ref: Ref, action: str = "") -> str:
    return _path("jobs", ref, action)


def _path(nouns: str, ref: Ref, action: str) -> str:
    # "." and ".." would be taken for folders on the way to the server.
    if str(ref) in ("", ".", ".."):
        raise NotFound(f"no {nouns.removesuffix('s')} is called {str(ref)!r}")
    return f"/api/v1/{nouns}/{quote(str(ref), safe='')}" + (f"/{action}" if action else "")
