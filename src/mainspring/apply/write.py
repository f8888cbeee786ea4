"""Writes a plan: all changes in one transaction, or none."""

from __future__ import annotations

from typing import Any

from mainspring import wire
from mainspring.apply.adapter import Live, Writer, Written
from mainspring.apply.changes import Change, Deletion, Plan, Requester
from mainspring.apply.definitions import Jobs
from mainspring.apply.kinds import ADAPTERS
from mainspring.apply.plan import job_spec, job_write, plan_of
from mainspring.apply.problems import ProblemList
from mainspring.domain.errors import Conflict, Invalid, MainspringError, NotFound, Problem
from mainspring.ids import SHARDS
from mainspring.intake.dependency_changes import change_many
from mainspring.intake.jobs.bulk import changed_meanwhile
from mainspring.intake.quota import charged_for
from mainspring.store import audit, manifests, needs, shards
from mainspring.store.db import Connection, Database, JoinedDatabase, Taken
from mainspring.store.manifests import AppliedRow, Key

MAX_TRIES = 3
"""An object that changes between reading and locking makes the plan obsolete: it is made again."""


class _DryRun(Exception):
    """Rolls the transaction of a dry run back."""


async def diff_manifests(database: Database, request: wire.ApplyManifests, requester: Requester) -> wire.ManifestPlan:
    """Return what applying would do; writes and locks nothing."""
    async with database.connection() as connection:
        plan = await plan_of(connection, request, requester)
    return plan.response(request.owner, applied=False)


async def apply_manifests(
    database: Database, request: wire.ApplyManifests, requester: Requester, *, dry_run: bool = False
) -> wire.ManifestPlan:
    """Apply manifests, all or none. A dry run does the same and rolls back."""
    for tries_left in reversed(range(MAX_TRIES)):
        async with database.connection() as connection:
            plan = await plan_of(connection, request, requester)
        if request.plan is not None and request.plan != plan.digest:
            message = "the plan has changed since it was reviewed"
            raise Conflict(message, code="plan_changed", problems=(Problem("/plan", message, "review the new plan"),))
        try:
            secrets = await _write(database, plan, request, requester, dry_run=dry_run)
        except Conflict as error:
            if error.code != "version_changed" or not tries_left:
                raise
        else:
            return plan.response(request.owner, applied=not dry_run, secrets=secrets)
    raise AssertionError("unreachable")


async def _write(
    database: Database, plan: Plan, request: wire.ApplyManifests, requester: Requester, *, dry_run: bool
) -> dict[Key, str | None]:
    changes = [change for change in plan.changes if change.writes]
    if not changes and not plan.deletions and not plan.gone and not any(change.record for change in plan.changes):
        return {}
    adds = sum(_adds_schedule(change) for change in changes)
    written: dict[Key, Written] = {}
    try:
        async with (
            charged_for(database, adds, tenant=requester.tenant, by=requester.by) as by,
            database.transaction() as connection,
        ):
            joined = JoinedDatabase(connection, database)
            may = requester.may_exceed, requester.may_share
            writer = Writer(joined, requester.vault, connection, requester.tenant, by, *may)
            await _lock(connection, plan, tenant=requester.tenant)
            await _check_unchanged(connection, plan, tenant=requester.tenant)
            written = await _write_changes(writer, changes)
            edges = [change.needs for change in changes]
            if found := [edge for edge in edges if edge is not None]:
                await change_many(connection, found, tenant=requester.tenant, by=by)
            await _delete(writer, plan)
            await _record(connection, plan, written, request, requester)
            if dry_run:
                raise _DryRun
    except _DryRun:
        return {}
    except Taken:
        raise changed_meanwhile("an object of the same name") from None
    return {key: one.secret for key, one in written.items() if one.secret is not None}


async def _lock(connection: Connection, plan: Plan, *, tenant: int) -> None:
    """Take locks in the order that all edits have: dependencies, shards, then everything else."""
    deletes_jobs = any(deletion.key[0] in ("Job", "Workflow") for deletion in plan.deletions)
    changes_needs = any(change.needs is not None for change in plan.changes)
    if deletes_jobs or changes_needs:
        await needs.lock_tenant(connection, tenant=tenant)
    kinds = {change.manifest.kind for change in plan.changes if change.writes} | {d.key[0] for d in plan.deletions}
    several = kinds - {"Job"} or deletes_jobs or changes_needs  # jobs alone are written with one lock of their shards
    if several and any(ADAPTERS[kind].locks_shards for kind in kinds):
        await shards.bump_edited_shards(connection, shards=range(SHARDS))


async def _check_unchanged(connection: Connection, plan: Plan, *, tenant: int) -> None:
    """Read the objects again, now that no edit can come in between. Jobs check their versions when they are written."""
    for kind, adapter in ADAPTERS.items():
        mine = [c for c in plan.changes if c.manifest.kind == kind and c.writes and kind != "Job"]
        wanted = {change.manifest.name: None if change.live is None else change.live.object_id for change in mine}
        again = await adapter.read(connection, wanted, tenant=tenant) if wanted else {}
        for change in mine:
            if _state(again.get(change.manifest.name)) != _state(change.live):
                raise changed_meanwhile(change.manifest.name)


def _state(live: Live | None) -> Any:
    return None if live is None else (live.values, live.object_id, live.version, live.secrets)


async def _write_changes(writer: Writer, changes: list[Change]) -> dict[Key, Written]:
    written: dict[Key, Written] = {}
    for kind, adapter in ADAPTERS.items():
        mine = [change for change in changes if change.manifest.kind == kind]
        if isinstance(adapter, Jobs):
            mine = [change for change in mine if change.versioned]
            writes = [job_write(change, job_spec(change)) for change in mine]
            found = await adapter.write_all(writer, writes)
            written |= {change.key: one for change, one in zip(mine, found, strict=True)}
            continue
        for change in mine:
            try:
                written[change.key] = await adapter.write(writer, change.manifest.name, change.definition, change.live)
            except MainspringError as error:
                raise _at(change.number, error) from None
    return written


async def _delete(writer: Writer, plan: Plan) -> None:
    """Delete objects; one that another object to delete still needs comes after it."""
    left = plan.deletions
    while left:
        refused: list[tuple[Deletion, Conflict]] = []
        for deletion in left:
            kind, name = deletion.key
            try:
                await ADAPTERS[kind].delete(writer, name, deletion.live, deletion.last)
            except NotFound:
                raise changed_meanwhile(name) from None
            except Conflict as error:
                if error.code == "version_changed":
                    raise
                refused.append((deletion, error))
        if len(refused) == len(left):
            first, reason = refused[0]
            message = f"{first.key[0]} {first.key[1]!r} can't be pruned: {reason.message}"
            raise Conflict(message, code=reason.code) from None
        left = [deletion for deletion, _ in refused]


async def _record(
    connection: Connection,
    plan: Plan,
    written: dict[Key, Written],
    request: wire.ApplyManifests,
    requester: Requester,
) -> None:
    tenant, owner = requester.tenant, request.owner
    rows = [_applied(change, written.get(change.key)) for change in plan.changes if change.record or change.writes]
    if rows:
        found = await manifests.write_applied(
            connection, tenant=tenant, owner=owner, by=requester.by, take_over=request.take_over, rows=rows
        )
        if missing := [row.key for row in rows if row.key not in found]:
            raise changed_meanwhile(missing[0][1])
    gone = [deletion.key for deletion in plan.deletions] + plan.gone
    if gone:
        await manifests.forget_applied(connection, tenant=tenant, owner=owner, keys=gone)
    counts = plan.response(owner, applied=True)
    if counts.created or counts.changed or counts.deleted:
        await audit.record(
            connection,
            "manifest.apply",
            owner,
            tenant=tenant,
            by=requester.by,
            name=owner,
            created=counts.created,
            changed=counts.changed,
            deleted=counts.deleted,
        )


def _applied(change: Change, written: Written | None) -> AppliedRow:
    live = change.live
    object_id = written.object_id if written is not None else None if live is None else live.object_id
    version = written.version if written is not None else None if live is None else live.version
    if any(one.kept for one in change.shown.drift):
        version = None  # so that the next plan compares it again and names the fields of others
    return AppliedRow(change.key, change.manifest.given, change.digest, object_id, version)


def _adds_schedule(change: Change) -> bool:
    """Whether a change adds a schedule, which counts against the quota of the token."""
    if getattr(change.definition, "schedule", None) is None:
        return False
    return change.live is None or "schedule" not in change.live.values or change.manifest.kind == "Blackout"


def _at(number: int, error: MainspringError) -> MainspringError:
    """Point to the manifest whose write was refused."""
    if not isinstance(error, Invalid):
        return error
    problems = ProblemList()
    problems.add_definition(number, error)
    return Invalid(error.message, code=error.code, problems=tuple(problems.found))
