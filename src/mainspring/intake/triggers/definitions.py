"""Create, edit, pause and delete triggers; rotate the secrets of webhooks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec

from mainspring import wire
from mainspring.clock import instant
from mainspring.domain.audit import changes
from mainspring.domain.channel import new_secret
from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import Conflict, Invalid, invalid
from mainspring.domain.topic import TopicSource
from mainspring.domain.trigger import (
    MAX_FILE_TRIGGERS,
    MAX_OVERLAP_S,
    MAX_TOPIC_TRIGGERS,
    MAX_TRIGGERS,
    CompletionSource,
    TriggerSecrets,
    TriggerSpec,
    WebhookSource,
    kind_of,
    secret_problem,
    trigger_problems,
)
from mainspring.domain.watch import FilesSource
from mainspring.intake.triggers import signing
from mainspring.store import audit, needs, trigger_files, trigger_topics, triggers
from mainspring.store.db import Connection, Database, Taken, database_now_ms
from mainspring.store.triggers import TriggerRow
from mainspring.vault.vault import Vault
from mainspring.views import refs
from mainspring.views import triggers as views

NO_READER = "no scheduler process reads the cluster {!r} yet; an operator adds it with --kafka-triggers"


async def create(
    database: Database,
    vault: Vault,
    name: str,
    spec: TriggerSpec,
    *,
    secret: str | None = None,
    tenant: int,
    by: str,
) -> wire.Trigger:
    """Create a trigger; the answer has the secret that was generated for a webhook, which is never shown again."""
    _check(name, spec)
    generated = _generated(spec, secret)
    secrets, trigger_id = TriggerSecrets(generated or secret), uuid4()
    stored = signing.sealed(vault, secrets, tenant=tenant, trigger_id=trigger_id, name=name)
    try:
        async with database.transaction() as connection:
            await needs.lock_tenant(connection, tenant=tenant)
            await _check_jobs(connection, name, spec, tenant=tenant)
            await signing.check_reference(connection, name, secret, tenant=tenant)
            made = await triggers.insert_trigger(
                connection,
                tenant=tenant,
                trigger_id=trigger_id,
                name=name,
                spec=spec,
                secrets=stored,
                by=by,
                most=MAX_TRIGGERS,
                most_files=MAX_FILE_TRIGGERS,
                most_topics=MAX_TOPIC_TRIGGERS,
            )
            if not made:
                few = f"{MAX_FILE_TRIGGERS} of them for files, {MAX_TOPIC_TRIGGERS} for topics"
                raise Conflict(f"a tenant may have {MAX_TRIGGERS:,} triggers, {few}", code="too_many_triggers")
            if isinstance(spec.source, FilesSource | TopicSource):
                await trigger_files.begin_watch(connection, tenant=tenant, trigger_id=trigger_id)
            if isinstance(spec.source, TopicSource):
                await trigger_topics.topic_read(
                    connection, tenant=tenant, trigger_id=trigger_id, problem=NO_READER.format(spec.source.cluster)
                )
            await audit.record(
                connection, "trigger.create", name, tenant=tenant, by=by, name=name, kind=kind_of(spec), job=spec.job
            )
    except Taken:
        raise Conflict(f"trigger {name!r} already exists", code="name_taken") from None
    return msgspec.structs.replace(await views.get(database, name, tenant=tenant), secret=generated)


async def replace(database: Database, name: str, spec: TriggerSpec, *, tenant: int, by: str) -> wire.Trigger:
    """Replace the definition of a trigger. Its kind, address, secrets and deliveries stay."""
    _check(name, spec)
    async with database.transaction() as connection:
        await needs.lock_tenant(connection, tenant=tenant)
        before = await _locked(connection, name, tenant=tenant)
        if kind_of(spec) != before.kind:
            message = f"the trigger {name!r} is a {before.kind}, not a {kind_of(spec)}"
            raise invalid("/source/kind", message, hint="delete it and create another one")
        await _check_jobs(connection, name, spec, tenant=tenant)
        await triggers.update_trigger(connection, tenant=tenant, before=before, spec=spec)
        await _watch_again(connection, before, spec)
        fields = changes(_audited(before.spec), _audited(spec))
        await audit.record(connection, "trigger.edit", name, tenant=tenant, by=by, name=name, fields=sorted(fields))
    return await views.get(database, name, tenant=tenant)


async def pause(database: Database, name: str, reason: str, *, tenant: int, by: str) -> wire.Trigger:
    async with database.transaction() as connection:
        if not await triggers.pause_trigger(connection, tenant=tenant, name=name, reason=reason):
            raise views.unknown(name)
        await audit.record(connection, "trigger.pause", name, tenant=tenant, by=by, name=name, reason=reason)
    return await views.get(database, name, tenant=tenant)


async def resume(database: Database, name: str, *, tenant: int, by: str) -> wire.Trigger:
    """Resume a trigger. A trigger that is not paused stays as it is."""
    async with database.transaction() as connection:
        if await triggers.resume_trigger(connection, tenant=tenant, name=name):
            row = await _locked(connection, name, tenant=tenant)
            await _watch_again(connection, row, row.spec)
            await audit.record(connection, "trigger.resume", name, tenant=tenant, by=by, name=name)
    return await views.get(database, name, tenant=tenant)


async def delete(database: Database, name: str, *, tenant: int, by: str) -> None:
    async with database.transaction() as connection:
        if not await triggers.delete_trigger(connection, tenant=tenant, name=name):
            raise views.unknown(name)
        await audit.record(connection, "trigger.delete", name, tenant=tenant, by=by, name=name)


async def rotate(
    database: Database, vault: Vault, name: str, request: wire.RotateTriggerSecret, *, tenant: int, by: str
) -> wire.Trigger:
    """Replace the secret of a webhook; the previous one stays valid for the overlap."""
    overlap_s = _overlap_s(request.overlap)
    async with database.transaction() as connection:
        before = await _locked(connection, name, tenant=tenant)
        if not isinstance(before.spec.source, WebhookSource):
            raise Conflict(f"the trigger {name!r} is a {before.kind}, which has no secret", code="no_secret")
        generated = _generated(before.spec, request.secret)
        secret = generated or request.secret
        assert secret is not None
        await signing.check_reference(connection, name, secret, tenant=tenant)
        now_s = await database_now_ms(connection) / 1000
        rotated = signing.secrets_of(vault, before).rotated(secret, now_s=now_s, overlap_s=overlap_s)
        stored = signing.sealed(vault, rotated, tenant=tenant, trigger_id=before.trigger_id, name=name)
        await triggers.set_trigger_secrets(connection, tenant=tenant, name=name, secrets=stored)
        until = (instant(now_s * 1000) + timedelta(seconds=overlap_s)).isoformat()
        await audit.record(
            connection, "trigger.rotate", name, tenant=tenant, by=by, name=name, previous_secret_until=until
        )
    return msgspec.structs.replace(await views.get(database, name, tenant=tenant), secret=generated)


def _check(name: str, spec: TriggerSpec) -> None:
    if problems := trigger_problems(name, spec):
        raise Invalid(problems[0].message, code="bad_trigger", problems=tuple(problems))


def _generated(spec: TriggerSpec, given: str | None) -> str | None:
    """Return a new secret for a webhook without a given one. Raises Invalid for one that is not valid."""
    if not isinstance(spec.source, WebhookSource):
        if given is not None:
            raise invalid("/secret", "only webhooks have a secret", hint="leave it out")
        return None
    if given is None:
        return new_secret()
    if (problem := secret_problem(given, spec.source)) is not None:
        raise invalid(problem.pointer, problem.message, hint=problem.hint, code="bad_secret")
    return None


def _overlap_s(overlap: str | int | float) -> float:
    try:
        overlap_s = parse_duration(overlap)
    except ValueError as error:
        raise invalid("/overlap", str(error), hint="such as 24h; 0 ends the previous secret at once") from None
    if not 0 <= overlap_s <= MAX_OVERLAP_S:
        raise invalid("/overlap", f"{overlap!r} is out of range", hint="between 0 and 7 days")
    return overlap_s


async def _check_jobs(connection: Connection, name: str, spec: TriggerSpec, *, tenant: int) -> None:
    """Refuse jobs that do not exist, ids, and completions that would start themselves. The tenant is locked."""
    await _check_job(connection, "/job", spec.job, tenant=tenant)
    if not isinstance(spec.source, CompletionSource):
        return
    await _check_job(connection, "/source/after", spec.source.after, tenant=tenant)
    if await triggers.leads_back(connection, tenant=tenant, name=name, start=spec.job, end=spec.source.after):
        message = f"a cycle: {spec.job} starts {spec.source.after} again, by triggers or dependencies"
        raise invalid("/source/after", message, hint="remove one of them", code="cycle")


async def _check_job(connection: Connection, pointer: str, name: str, *, tenant: int) -> None:
    row = await refs.find_job(connection, name, tenant=tenant)
    if row is None or row.deleted_at is not None:
        hint = "create the job or workflow first"
        raise invalid(pointer, f"there is no job {name!r}", hint=hint, code="unknown_job")
    if row.name != name:
        raise invalid(pointer, "a trigger names its job", hint=f"write {row.name!r}")


async def _locked(connection: Connection, name: str, *, tenant: int) -> TriggerRow:
    row = await triggers.lock_trigger(connection, tenant=tenant, name=name)
    if row is None:
        raise views.unknown(name)
    return row


async def _watch_again(connection: Connection, before: TriggerRow, spec: TriggerSpec) -> None:
    """Have the next look now. In another place, or for another pattern, files that are older than this edit exist."""
    was, now = before.spec.source, spec.source
    if not isinstance(was, FilesSource) or not isinstance(now, FilesSource):
        return
    moved = (was.place, was.pattern) != (now.place, now.pattern)
    if was.place != now.place:
        await trigger_files.forget_files(connection, tenant=before.tenant, trigger_id=before.trigger_id)
    await trigger_files.begin_watch(connection, tenant=before.tenant, trigger_id=before.trigger_id, moved=moved)


def _audited(spec: TriggerSpec) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(spec)
    return found
