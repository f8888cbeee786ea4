"""The client without coroutines: the methods of `AsyncClient` on blocking connections, which never suspend."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from mainspring import wire
from mainspring.client.api import AsyncClient
from mainspring.client.discovery import Server
from mainspring.client.paths import Ref
from mainspring.client.submission import IN_FLIGHT, Submission, send_in_threads
from mainspring.domain.alert import Rule
from mainspring.domain.dead_letter import DeadLetterState
from mainspring.domain.execution import State
from mainspring.domain.job import JobSpec
from mainspring.domain.placement.isolation import MinIsolation
from mainspring.domain.trigger import TriggerSpec
from mainspring.domain.workflow.spec import WorkflowSpec
from mainspring.http_client import BlockingNetwork, finish

T = TypeVar("T")


class Client:
    """`AsyncClient` with blocking methods; safe to share between threads, and with forked processes.

    Use it with `with`.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        server: Server | None = None,
        max_connections: int = 64,
    ) -> None:
        self._inner = AsyncClient(url, token, server=server, network=BlockingNetwork(), max_connections=max_connections)
        self.server = self._inner.server

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        finish(self._inner.aclose())

    def create_job(self, spec: JobSpec | dict[str, Any]) -> wire.Job:
        return finish(self._inner.create_job(spec))

    def jobs(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        prefix: str | None = None,
        filter: str | None = None,
    ) -> wire.Page[wire.Job]:
        return finish(self._inner.jobs(limit=limit, cursor=cursor, prefix=prefix, filter=filter))

    def job(self, ref: Ref) -> wire.Job:
        return finish(self._inner.job(ref))

    def patch_job(self, ref: Ref, patch: dict[str, Any]) -> wire.Job:
        return finish(self._inner.patch_job(ref, patch))

    def delete_job(self, ref: Ref, *, reason: str = "", detach: bool = False) -> None:
        finish(self._inner.delete_job(ref, reason=reason, detach=detach))

    def needs(self, ref: Ref) -> wire.Dependencies:
        return finish(self._inner.needs(ref))

    def add_need(
        self, ref: Ref, parent: str, *, timeout: str | float | None = None, wait: str | float | None = None
    ) -> wire.Dependencies:
        return finish(self._inner.add_need(ref, parent, timeout=timeout, wait=wait))

    def remove_need(self, ref: Ref, parent: Ref) -> None:
        finish(self._inner.remove_need(ref, parent))

    def pause_job(self, ref: Ref, reason: str = "", *, until: datetime | None = None) -> wire.Job:
        return finish(self._inner.pause_job(ref, reason, until=until))

    def resume_job(self, ref: Ref, *, catch_up: bool = False) -> wire.Job:
        return finish(self._inner.resume_job(ref, catch_up=catch_up))

    def trigger(self, ref: Ref, request: wire.RunNow | None = None) -> wire.Execution:
        return finish(self._inner.trigger(ref, request))

    def fires(self, ref: Ref, *, count: int = 10, after: datetime | None = None) -> wire.Fires:
        return finish(self._inner.fires(ref, count=count, after=after))

    def history(self, ref: Ref, *, limit: int | None = None, cursor: str | None = None) -> wire.Page[wire.Execution]:
        return finish(self._inner.history(ref, limit=limit, cursor=cursor))

    def ledger(self, ref: Ref, *, limit: int | None = None, cursor: str | None = None) -> wire.Page[wire.LedgerEntry]:
        return finish(self._inner.ledger(ref, limit=limit, cursor=cursor))

    def versions(self, ref: Ref, *, limit: int | None = None, cursor: str | None = None) -> wire.Page[wire.Version]:
        return finish(self._inner.versions(ref, limit=limit, cursor=cursor))

    def job_size(self, ref: Ref) -> wire.JobSize:
        return finish(self._inner.job_size(ref))

    def stats(self, ref: Ref, *, since: str | None = None) -> wire.JobStats:
        return finish(self._inner.stats(ref, since=since))

    def rollback(self, ref: Ref, version: int) -> wire.Job:
        return finish(self._inner.rollback(ref, version))

    def try_patch(self, ref: Ref, patch: dict[str, Any]) -> wire.Change:
        return finish(self._inner.try_patch(ref, patch))

    def preview(self, request: wire.PreviewRequest) -> wire.Preview:
        return finish(self._inner.preview(request))

    def start_backfill(self, ref: Ref, request: wire.BackfillRequest) -> wire.Backfill:
        return finish(self._inner.start_backfill(ref, request))

    def plan_backfill(self, ref: Ref, request: wire.BackfillRequest) -> wire.BackfillPlan:
        return finish(self._inner.plan_backfill(ref, request))

    def backfills(
        self, *, job: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.Backfill]:
        return finish(self._inner.backfills(job=job, limit=limit, cursor=cursor))

    def backfill(self, backfill_id: Ref) -> wire.Backfill:
        return finish(self._inner.backfill(backfill_id))

    def pause_backfill(self, backfill_id: Ref) -> wire.Backfill:
        return finish(self._inner.pause_backfill(backfill_id))

    def resume_backfill(self, backfill_id: Ref) -> wire.Backfill:
        return finish(self._inner.resume_backfill(backfill_id))

    def cancel_backfill(self, backfill_id: Ref) -> wire.Backfill:
        return finish(self._inner.cancel_backfill(backfill_id))

    def calendars(self, *, limit: int | None = None, cursor: str | None = None) -> wire.Page[wire.Calendar]:
        return finish(self._inner.calendars(limit=limit, cursor=cursor))

    def calendar(self, name: str) -> wire.Calendar:
        return finish(self._inner.calendar(name))

    def put_calendar(self, name: str, days: wire.CalendarDays) -> wire.Calendar:
        return finish(self._inner.put_calendar(name, days))

    def try_calendar(self, name: str, days: wire.CalendarDays) -> wire.CalendarChange:
        return finish(self._inner.try_calendar(name, days))

    def delete_calendar(self, name: str) -> None:
        finish(self._inner.delete_calendar(name))

    def calendar_versions(
        self, name: str, *, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.CalendarVersion]:
        return finish(self._inner.calendar_versions(name, limit=limit, cursor=cursor))

    def closed_days(self, name: str, *, count: int = 90) -> wire.ClosedDays:
        return finish(self._inner.closed_days(name, count=count))

    def scaling(self, *, target: float | None = None) -> wire.Scaling:
        return finish(self._inner.scaling(target=target))

    def costs(self, *, days: float | None = None, jobs: int | None = None) -> wire.Costs:
        return finish(self._inner.costs(days=days, jobs=jobs))

    def forecast(
        self, *, days: int | None = None, workers: int | None = None, slots: int | None = None
    ) -> wire.Forecast:
        return finish(self._inner.forecast(days=days, workers=workers, slots=slots))

    def duration_requests(
        self, *, state: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.DurationRequest]:
        return finish(self._inner.duration_requests(state=state, limit=limit, cursor=cursor))

    def request_duration(self, new: wire.NewDurationRequest) -> wire.DurationRequest:
        return finish(self._inner.request_duration(new))

    def decide_duration(self, request_id: UUID | str, *, approved: bool, note: str = "") -> wire.DurationRequest:
        return finish(self._inner.decide_duration(request_id, approved=approved, note=note))

    def withdraw_duration(self, request_id: UUID | str) -> wire.DurationRequest:
        return finish(self._inner.withdraw_duration(request_id))

    def reservations(self) -> wire.Page[wire.Reservation]:
        return finish(self._inner.reservations())

    def add_reservation(self, reservation: wire.NewReservation) -> wire.Reservation:
        return finish(self._inner.add_reservation(reservation))

    def delete_reservation(self, name: str) -> None:
        finish(self._inner.delete_reservation(name))

    def blackouts(self, *, limit: int | None = None, cursor: str | None = None) -> wire.Page[wire.Blackout]:
        return finish(self._inner.blackouts(limit=limit, cursor=cursor))

    def add_blackout(self, blackout: wire.NewBlackout) -> wire.Blackout:
        return finish(self._inner.add_blackout(blackout))

    def delete_blackout(self, blackout_id: UUID) -> None:
        finish(self._inner.delete_blackout(blackout_id))

    def alerts(
        self, *, state: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.Alert]:
        return finish(self._inner.alerts(state=state, limit=limit, cursor=cursor))

    def alert_rules(self) -> wire.Page[wire.AlertRule]:
        return finish(self._inner.alert_rules())

    def put_alert_rule(self, name: str, rule: Rule) -> wire.AlertRule:
        return finish(self._inner.put_alert_rule(name, rule))

    def delete_alert_rule(self, name: str) -> None:
        finish(self._inner.delete_alert_rule(name))

    def silences(self) -> wire.Page[wire.Silence]:
        return finish(self._inner.silences())

    def add_silence(self, silence: wire.NewSilence) -> wire.Silence:
        return finish(self._inner.add_silence(silence))

    def delete_silence(self, silence_id: UUID) -> None:
        finish(self._inner.delete_silence(silence_id))

    def secrets(self, *, limit: int | None = None, cursor: str | None = None) -> wire.Page[wire.Secret]:
        return finish(self._inner.secrets(limit=limit, cursor=cursor))

    def secret(self, name: str) -> wire.Secret:
        return finish(self._inner.secret(name))

    def put_secret(self, name: str, secret: wire.SecretSpec) -> wire.Secret:
        return finish(self._inner.put_secret(name, secret))

    def rotate_secret(self, name: str, value: str) -> wire.Secret:
        return finish(self._inner.rotate_secret(name, value))

    def delete_secret(self, name: str) -> None:
        finish(self._inner.delete_secret(name))

    def secret_keys(self) -> wire.SecretKeys:
        return finish(self._inner.secret_keys())

    def encrypt_secrets(self) -> wire.SecretKeys:
        return finish(self._inner.encrypt_secrets())

    def rotate_secret_key(self) -> wire.SecretKeys:
        return finish(self._inner.rotate_secret_key())

    def channels(self) -> wire.Page[wire.Channel]:
        return finish(self._inner.channels())

    def channel(self, name: str) -> wire.Channel:
        return finish(self._inner.channel(name))

    def add_channel(self, channel: wire.NewChannel) -> wire.Channel:
        return finish(self._inner.add_channel(channel))

    def put_channel(self, name: str, channel: wire.ChannelSpec) -> wire.Channel:
        return finish(self._inner.put_channel(name, channel))

    def delete_channel(self, name: str) -> None:
        finish(self._inner.delete_channel(name))

    def test_channel(self, name: str) -> wire.ChannelTest:
        return finish(self._inner.test_channel(name))

    def enable_channel(self, name: str) -> wire.Channel:
        return finish(self._inner.enable_channel(name))

    def deliveries(
        self,
        *,
        channel: str | None = None,
        state: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> wire.Page[wire.Delivery]:
        return finish(self._inner.deliveries(channel=channel, state=state, limit=limit, cursor=cursor))

    def triggers(
        self, *, job: str | None = None, kind: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.Trigger]:
        return finish(self._inner.triggers(job=job, kind=kind, limit=limit, cursor=cursor))

    def get_trigger(self, name: str) -> wire.Trigger:
        return finish(self._inner.get_trigger(name))

    def add_trigger(self, trigger: wire.NewTrigger) -> wire.Trigger:
        return finish(self._inner.add_trigger(trigger))

    def put_trigger(self, name: str, spec: TriggerSpec) -> wire.Trigger:
        return finish(self._inner.put_trigger(name, spec))

    def delete_trigger(self, name: str) -> None:
        finish(self._inner.delete_trigger(name))

    def pause_trigger(self, name: str, *, reason: str = "") -> wire.Trigger:
        return finish(self._inner.pause_trigger(name, reason=reason))

    def resume_trigger(self, name: str) -> wire.Trigger:
        return finish(self._inner.resume_trigger(name))

    def rotate_trigger(self, name: str, *, secret: str | None = None, overlap: str = "24h") -> wire.Trigger:
        return finish(self._inner.rotate_trigger(name, secret=secret, overlap=overlap))

    def test_trigger(self, name: str, sample: wire.TriggerSample) -> wire.TriggerTest:
        return finish(self._inner.test_trigger(name, sample))

    def trigger_deliveries(
        self, name: str, *, outcome: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.TriggerDelivery]:
        return finish(self._inner.trigger_deliveries(name, outcome=outcome, limit=limit, cursor=cursor))

    def events(self, ref: Ref) -> wire.Page[wire.LifecycleEvent]:
        return finish(self._inner.events(ref))

    def submit(self, items: Sequence[wire.BatchItem]) -> wire.BatchAnswer:
        return finish(self._inner.submit(items))

    def submit_many(self, items: Iterable[wire.BatchItem], *, in_flight: int = IN_FLIGHT) -> list[UUID]:
        submission = Submission(items)
        send_in_threads(submission, self._inner.submit, in_flight)
        return submission.result()

    def executions(
        self,
        *,
        job: str | None = None,
        state: Sequence[State] = (),
        limit: int | None = None,
        cursor: str | None = None,
        filter: str | None = None,
    ) -> wire.Page[wire.Execution]:
        return finish(self._inner.executions(job=job, state=state, limit=limit, cursor=cursor, filter=filter))

    def execution(self, ref: Ref, *, wait_s: float = 0.0) -> wire.Execution:
        return finish(self._inner.execution(ref, wait_s=wait_s))

    def last_execution(self) -> wire.Execution:
        return finish(self._inner.last_execution())

    def cancel(self, ref: Ref, reason: str = "") -> wire.Execution:
        return finish(self._inner.cancel(ref, reason))

    def requeue(self, ref: Ref, *, params: dict[str, Any] | None = None, reason: str = "") -> wire.Execution:
        return finish(self._inner.requeue(ref, params=params, reason=reason))

    def logs(self, ref: Ref, *, place: str = "") -> wire.Logs:
        return finish(self._inner.logs(ref, place=place))

    def artifacts(self, ref: Ref) -> wire.Page[wire.Artifact]:
        return finish(self._inner.artifacts(ref))

    def artifact(self, ref: Ref, name: str) -> Iterator[bytes]:
        return self._each(self._inner.artifact(ref, name))

    def follow_logs(self, ref: Ref) -> Iterator[wire.LogChunk]:
        return self._each(self._inner.follow_logs(ref))

    def follow(self, ref: Ref) -> Iterator[wire.LogChunk | wire.Progress | wire.Retry]:
        return self._each(self._inner.follow(ref))

    def wait(self, ref: Ref, *, timeout_s: float = math.inf, appears_s: float = 0.0) -> wire.Execution:
        return finish(self._inner.wait(ref, timeout_s=timeout_s, appears_s=appears_s))

    def dead_letters(
        self,
        *,
        job: str | None = None,
        fingerprint: str | None = None,
        state: Sequence[DeadLetterState] = (),
        limit: int | None = None,
        cursor: str | None = None,
    ) -> wire.Page[wire.DeadLetter]:
        return finish(
            self._inner.dead_letters(job=job, fingerprint=fingerprint, state=state, limit=limit, cursor=cursor)
        )

    def dead_letter_groups(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.DeadLetterGroup]:
        return finish(self._inner.dead_letter_groups(limit=limit, cursor=cursor))

    def dead_letter(self, ref: Ref) -> wire.DeadLetter:
        return finish(self._inner.dead_letter(ref))

    def claim_dead_letter(self, ref: Ref, *, for_: str | int | float = "10m") -> wire.DeadLetter:
        return finish(self._inner.claim_dead_letter(ref, for_=for_))

    def claim_dead_letters(self, request: wire.DeadLetterClaim | None = None) -> wire.Page[wire.DeadLetter]:
        return finish(self._inner.claim_dead_letters(request))

    def release_dead_letter(self, ref: Ref) -> wire.DeadLetter:
        return finish(self._inner.release_dead_letter(ref))

    def edit_dead_letter(self, ref: Ref, edit: wire.DeadLetterEdit) -> wire.DeadLetter:
        return finish(self._inner.edit_dead_letter(ref, edit))

    def replay_dead_letter(self, ref: Ref, request: wire.ReplayOne | None = None) -> wire.Replay:
        return finish(self._inner.replay_dead_letter(ref, request))

    def replay_dead_letters(self, request: wire.ReplayMany) -> wire.Replay:
        return finish(self._inner.replay_dead_letters(request))

    def dismiss_dead_letter(self, ref: Ref, reason: str) -> wire.DeadLetter:
        return finish(self._inner.dismiss_dead_letter(ref, reason))

    def dismiss_dead_letters(self, request: wire.DismissMany) -> wire.Dismissed:
        return finish(self._inner.dismiss_dead_letters(request))

    def feed(self) -> Iterator[wire.Execution]:
        return self._each(self._inner.feed())

    def shards(self) -> wire.Shards:
        return finish(self._inner.shards())

    def queues(self) -> wire.Queues:
        return finish(self._inner.queues())

    def set_queue(self, name: str, changes: dict[str, Any]) -> wire.Queue:
        return finish(self._inner.set_queue(name, changes))

    def set_min_isolation(self, minimum: MinIsolation) -> wire.Queues:
        return finish(self._inner.set_min_isolation(minimum))

    def why(self, ref: Ref) -> wire.Why:
        return finish(self._inner.why(ref))

    def why_job(self, ref: Ref) -> wire.Why:
        return finish(self._inner.why_job(ref))

    def apply_workflow(self, spec: WorkflowSpec | dict[str, Any]) -> wire.Workflow:
        return finish(self._inner.apply_workflow(spec))

    def check_workflow(self, spec: WorkflowSpec | dict[str, Any]) -> wire.WorkflowOrder:
        return finish(self._inner.check_workflow(spec))

    def workflows(self, *, limit: int | None = None, cursor: str | None = None) -> wire.Page[wire.WorkflowLine]:
        return finish(self._inner.workflows(limit=limit, cursor=cursor))

    def workflow(self, ref: Ref) -> wire.Workflow:
        return finish(self._inner.workflow(ref))

    def workflow_versions(
        self, ref: Ref, *, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.WorkflowChange]:
        return finish(self._inner.workflow_versions(ref, limit=limit, cursor=cursor))

    def workflow_version(self, ref: Ref, version: int) -> wire.WorkflowVersion:
        return finish(self._inner.workflow_version(ref, version))

    def rollback_workflow(self, ref: Ref, version: int) -> wire.Workflow:
        return finish(self._inner.rollback_workflow(ref, version))

    def delete_workflow(self, ref: Ref, *, reason: str = "", detach: bool = False) -> None:
        finish(self._inner.delete_workflow(ref, reason=reason, detach=detach))

    def start_run(
        self, ref: Ref, params: dict[str, Any] | None = None, *, key: str | None = None, reason: str | None = None
    ) -> wire.Run:
        return finish(self._inner.start_run(ref, params, key=key, reason=reason))

    def force_complete_job(self, ref: Ref, reason: str) -> wire.Job:
        return finish(self._inner.force_complete_job(ref, reason))

    def skip_job(self, ref: Ref, reason: str) -> wire.Job:
        return finish(self._inner.skip_job(ref, reason))

    def audit(
        self,
        *,
        subject: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        cluster: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> wire.Page[wire.AuditEntry]:
        return finish(
            self._inner.audit(subject=subject, actor=actor, action=action, cluster=cluster, limit=limit, cursor=cursor)
        )

    def verify_audit(
        self, *, cluster: bool = False, head: str | None = None, cursor: str | None = None
    ) -> wire.AuditVerification:
        return finish(self._inner.verify_audit(cluster=cluster, head=head, cursor=cursor))

    def runs(
        self,
        *,
        workflow: str | None = None,
        states: Sequence[str] = (),
        limit: int | None = None,
        cursor: str | None = None,
    ) -> wire.Page[wire.Run]:
        return finish(self._inner.runs(workflow=workflow, states=states, limit=limit, cursor=cursor))

    def run(self, ref: Ref, *, items: bool = False) -> wire.Run:
        return finish(self._inner.run(ref, items=items))

    def step_timeline(self, ref: Ref, step: str, *, item: int | None = None) -> wire.StepTimeline:
        return finish(self._inner.step_timeline(ref, step, item=item))

    def grid(self, workflow: Ref, *, runs: int | None = None) -> wire.Grid:
        return finish(self._inner.grid(workflow, runs=runs))

    def cancel_run(self, ref: Ref, reason: str = "") -> wire.Run:
        return finish(self._inner.cancel_run(ref, reason))

    def rerun(self, ref: Ref, *, from_step: str | None = None) -> wire.Run:
        return finish(self._inner.rerun(ref, from_step=from_step))

    def send_event(self, ref: Ref, name: str, payload: Any = None) -> wire.Run:
        return finish(self._inner.send_event(ref, name, payload))

    def decide(self, ref: Ref, step: str, *, approved: bool, note: str = "") -> wire.Run:
        return finish(self._inner.decide(ref, step, approved=approved, note=note))

    def skip_step(self, ref: Ref, step: str, reason: str) -> wire.Run:
        return finish(self._inner.skip_step(ref, step, reason))

    def force_complete_step(self, ref: Ref, step: str, reason: str, result: Any = None) -> wire.Run:
        return finish(self._inner.force_complete_step(ref, step, reason, result))

    def manifests(
        self, kind: str, *, name: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.ManifestDocument]:
        return finish(self._inner.manifests(kind, name=name, limit=limit, cursor=cursor))

    def diff_manifests(self, request: wire.ApplyManifests) -> wire.ManifestPlan:
        return finish(self._inner.diff_manifests(request))

    def apply_manifests(self, request: wire.ApplyManifests, *, dry_run: bool = False) -> wire.ManifestPlan:
        return finish(self._inner.apply_manifests(request, dry_run=dry_run))

    def workers(self) -> wire.Page[wire.Worker]:
        return finish(self._inner.workers())

    def drain_worker(self, name: str, reason: str = "") -> wire.Worker:
        return finish(self._inner.drain_worker(name, reason))

    def resume_worker(self, name: str, reason: str = "") -> wire.Worker:
        return finish(self._inner.resume_worker(name, reason))

    def issue_worker_token(self, new: wire.NewWorkerToken) -> wire.WorkerToken:
        return finish(self._inner.issue_worker_token(new))

    def export_audit(self, *, cluster: bool = False, after: int = 0) -> Iterator[bytes]:
        return self._each(self._inner.export_audit(cluster=cluster, after=after))

    def doctor(self, *, everything: bool = False) -> wire.Diagnosis:
        return finish(self._inner.doctor(everything=everything))

    def login_link(self) -> wire.LoginLink:
        return finish(self._inner.login_link())

    def browser_sessions(self) -> wire.Page[wire.BrowserSession]:
        return finish(self._inner.browser_sessions())

    def end_browser_session(self, session_id: UUID | str) -> None:
        finish(self._inner.end_browser_session(session_id))

    def end_browser_sessions(self) -> wire.EndedSessions:
        return finish(self._inner.end_browser_sessions())

    def issue_token(self, new: wire.NewToken) -> wire.IssuedToken:
        return finish(self._inner.issue_token(new))

    def tokens(self, *, limit: int | None = None, cursor: str | None = None) -> wire.Page[wire.Token]:
        return finish(self._inner.tokens(limit=limit, cursor=cursor))

    def rotate_token(self, token_id: UUID | str, *, overlap: str = "1h") -> wire.IssuedToken:
        return finish(self._inner.rotate_token(token_id, overlap=overlap))

    def revoke_token(self, token_id: UUID | str) -> None:
        finish(self._inner.revoke_token(token_id))

    def users(self, *, limit: int | None = None, cursor: str | None = None) -> wire.Page[wire.User]:
        return finish(self._inner.users(limit=limit, cursor=cursor))

    def create_user(self, new: wire.NewUser) -> wire.User:
        return finish(self._inner.create_user(new))

    def change_user(self, name: str, change: wire.UserChange) -> wire.User:
        return finish(self._inner.change_user(name, change))

    def block_user(self, name: str) -> wire.User:
        return finish(self._inner.block_user(name))

    def unblock_user(self, name: str) -> wire.User:
        return finish(self._inner.unblock_user(name))

    def whoami(self) -> wire.Whoami:
        return finish(self._inner.whoami())

    def delete_user(self, name: str) -> None:
        finish(self._inner.delete_user(name))

    def roles(self) -> wire.Page[wire.Role]:
        return finish(self._inner.roles())

    def write_role(self, name: str, spec: wire.RoleSpec) -> wire.Role:
        return finish(self._inner.write_role(name, spec))

    def delete_role(self, name: str) -> None:
        finish(self._inner.delete_role(name))

    def tenants(self, *, limit: int | None = None, cursor: str | None = None) -> wire.Page[wire.Tenant]:
        return finish(self._inner.tenants(limit=limit, cursor=cursor))

    def tenant(self, name: str) -> wire.Tenant:
        return finish(self._inner.tenant(name))

    def create_tenant(self, new: wire.NewTenant) -> wire.Tenant:
        return finish(self._inner.create_tenant(new))

    def edit_tenant(self, name: str, settings: wire.TenantSettings) -> wire.Tenant:
        return finish(self._inner.edit_tenant(name, settings))

    def suspend_tenant(self, name: str, reason: str = "") -> wire.Tenant:
        return finish(self._inner.suspend_tenant(name, reason))

    def resume_tenant(self, name: str) -> wire.Tenant:
        return finish(self._inner.resume_tenant(name))

    def export_tenant(self, name: str) -> wire.TenantExport:
        return finish(self._inner.export_tenant(name))

    def delete_tenant(self, name: str) -> None:
        finish(self._inner.delete_tenant(name))

    def issue_tenant_token(self, name: str, new: wire.NewToken) -> wire.IssuedToken:
        return finish(self._inner.issue_tenant_token(name, new))

    def _each(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        async def following() -> tuple[T] | None:
            async for item in items:
                return (item,)
            return None

        try:
            while (found := finish(following())) is not None:
                yield found[0]
        finally:
            finish(items.aclose())
