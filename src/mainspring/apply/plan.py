"""Plans an apply: reads what is there, compares, and finds every problem before anything is written."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.alerts.targets import secrets_of
from mainspring.apply.adapter import Live
from mainspring.apply.changes import Change, Deletion, Plan, Requester
from mainspring.apply.comparison import compare
from mainspring.apply.definitions import is_workflow
from mainspring.apply.fires import Fires, lost_fires
from mainspring.apply.kinds import ADAPTERS, ORDER
from mainspring.apply.needs import check_needs
from mainspring.apply.problems import ProblemList, refusal
from mainspring.apply.settings import split_secrets
from mainspring.apply.windows import has_ended
from mainspring.clock import instant
from mainspring.domain.channel import MASK, kept_secrets, kind_of
from mainspring.domain.errors import Conflict, Forbidden, Invalid, Problem
from mainspring.domain.job import JobSpec
from mainspring.domain.workflow.spec import job_of
from mainspring.intake.calendars import check_days
from mainspring.intake.jobs.bulk import JobWrite, Schedules, check_many
from mainspring.manifest import KINDS, STORED, Manifest, manifest_in
from mainspring.manifest.needs import depths
from mainspring.store import channels, jobs, manifests
from mainspring.store.calendars import calendar_of
from mainspring.store.db import Connection, database_now_ms
from mainspring.store.manifests import AppliedMark, Key
from mainspring.store.needs import names_needing
from mainspring.views import refs

MAX_DELETIONS = 500
"""Objects that one request prunes."""
MAX_OWNED = 200_000
PAUSE_EVERY = 50


async def plan_of(connection: Connection, request: wire.ApplyManifests, requester: Requester) -> Plan:
    """Return what applying would do. Raises Invalid with every problem; writes and locks nothing."""
    problems = ProblemList()
    parsed = await _parsed(request.manifests, problems)
    _refuse_scopes(parsed, requester)
    plan = Plan()
    keys = [manifest.key for _, manifest, _ in parsed]
    marks = await manifests.applied_marks(connection, tenant=requester.tenant, keys=keys) if keys else {}
    names = [name for kind, name in keys if kind in ("Job", "Workflow")]
    versions = await jobs.find_jobs(connection, tenant=requester.tenant, names=names, job_ids=[]) if names else {}
    needing = await names_needing(connection, tenant=requester.tenant, names=names) if names else set()
    rest = []
    for number, manifest, digest in parsed:
        mark = marks.get(manifest.key)
        foreign = mark is not None and mark.owner != request.owner and not request.take_over
        if mark is not None and foreign and requester.scopes is not None:
            problems.add(number, _other_owner(manifest, mark))
        elif (
            mark is not None
            and _same(mark, digest, request.owner, versions.get(manifest.name), manifest.kind)
            # Dependencies change without a new version.
            and not (manifest.kind == "Job" and (manifest.name in needing or "needs" in manifest.given))
        ):
            plan.unchanged += 1
        else:
            rest.append((number, manifest, digest))
    await _compare_all(connection, plan, rest, marks, problems, requester, owner=request.owner)
    if not request.take_over:
        _note_owners(plan, marks, request.owner)
    await _check_references(connection, plan, problems, requester)
    if request.prune:
        await _plan_deletions(connection, plan, request, set(keys), requester)
    await check_needs(connection, plan, problems, request, requester, present={name for _, name in keys})
    problems.check()
    return plan


def _note_owners(plan: Plan, marks: dict[Key, AppliedMark], owner: str) -> None:
    """Say which changes only the owner of the object can apply."""
    for place, change in enumerate(plan.changes):
        mark = marks.get(change.key)
        if mark is not None and mark.owner != owner and change.writes:
            note = f"it belongs to the owner {mark.owner!r}; applying it needs --take-over"
            plan.changes[place] = replace(change, shown=msgspec.structs.replace(change.shown, note=note))


async def _parsed(documents: Sequence[dict[str, Any]], problems: ProblemList) -> list[tuple[int, Manifest, bytes]]:
    found: list[tuple[int, Manifest, bytes]] = []
    seen: dict[Key, int] = {}
    for number, document in enumerate(documents):
        if number % PAUSE_EVERY == 0:
            await asyncio.sleep(0)  # let other requests run in between
        try:
            manifest = manifest_in(document)
        except Invalid as error:
            problems.add(number, error)
            continue
        if manifest.key in seen:
            message = f"{manifest.kind} {manifest.name!r} is defined twice"
            problems.add(number, refusal("/metadata/name", message, "remove one of them"))
            continue
        seen[manifest.key] = number
        given = split_secrets(manifest.given)[0] if manifest.kind == "Channel" else manifest.given
        digest = hashlib.sha256(msgspec.json.encode(given, order="deterministic")).digest()
        found.append((number, manifest, digest))
    found.sort(key=lambda entry: (ORDER[entry[1].kind], entry[0]))
    return found


def _refuse_scopes(parsed: Iterable[tuple[int, Manifest, bytes]], requester: Requester) -> None:
    """Each kind needs the scope that its own route needs."""
    if requester.scopes is None or "admin" in requester.scopes:
        return
    for kind in sorted({manifest.kind for _, manifest, _ in parsed}):
        if KINDS[kind].scope not in requester.scopes:
            raise Forbidden(f"this token lacks the scope {KINDS[kind].scope!r}, which a {kind} needs")


def _same(mark: AppliedMark, digest: bytes, owner: str, job: tuple[UUID, int] | None, kind: str) -> bool:
    """Whether neither the manifest nor its job has changed since it was applied."""
    if kind not in ("Job", "Workflow") or job is None:
        return False
    return mark.owner == owner and mark.digest == digest and (mark.object_id, mark.version) == job


async def _compare_all(
    connection: Connection,
    plan: Plan,
    rest: list[tuple[int, Manifest, bytes]],
    marks: dict[Key, AppliedMark],
    problems: ProblemList,
    requester: Requester,
    *,
    owner: str,
) -> None:
    tenant = requester.tenant
    now_ms = int(await database_now_ms(connection))
    keys = [manifest.key for _, manifest, _ in rest]
    contents = await manifests.applied_contents(connection, tenant=tenant, keys=keys) if keys else {}
    lives: dict[Key, Live] = {}
    for kind, adapter in ADAPTERS.items():
        wanted = {m.name: marks[m.key].object_id if m.key in marks else None for _, m, _ in rest if m.kind == kind}
        if wanted:
            lives |= {
                (kind, name): live for name, live in (await adapter.read(connection, wanted, tenant=tenant)).items()
            }
    for position, (number, manifest, digest) in enumerate(rest):
        if position % PAUSE_EVERY == 0:
            await asyncio.sleep(0)
        try:
            manifest = await _with_job_name(connection, manifest, tenant=tenant)
            live, mark = lives.get(manifest.key), marks.get(manifest.key)
            last = contents.get(manifest.key, {}) if mark is not None and _is_same_object(mark, live) else {}
            recorded = mark if mark is not None and mark.owner == owner else None
            stored = live.source.stored if live is not None and manifest.kind == "Channel" else None
            secrets = {} if stored is None else secrets_of(requester.vault, stored)
            plan.changes.append(
                _change(number, manifest, digest, live, last, now_ms, stored=secrets, recorded=recorded)
            )
        except Invalid as error:
            problems.add_definition(number, error)
        except Conflict as error:
            problems.add(number, error)
    await _check_definitions(connection, plan, problems, requester, now_ms)


def _change(
    number: int,
    manifest: Manifest,
    digest: bytes,
    live: Live | None,
    last: dict[str, Any],
    now_ms: int,
    *,
    stored: Mapping[str, Any],
    recorded: AppliedMark | None,
) -> Change:
    """Compare one manifest. `stored`: secrets of a channel. `recorded`: what its owner has recorded of it."""
    _refuse_other_kind(manifest, live)
    manifest, secrets = _without_secrets(manifest, live)
    found = compare(manifest, live, last)
    definition, fields = found.definition, found.fields
    if secrets:
        definition = msgspec.structs.replace(definition, target=msgspec.structs.replace(definition.target, **secrets))
        changed = [name for name, value in secrets.items() if live is not None and stored.get(name) != value]
        fields = fields + [wire.FieldChange(path=f"target.{name}", old=MASK, new=MASK) for name in changed]
    action: wire.ManifestAction = "create" if live is None else "change" if fields else "none"
    note = ""
    if live is None and has_ended(definition, instant(now_ms)):
        action, note = "none", "its window has ended"
    _check_definition(manifest, definition, live, stored)
    shown = wire.ManifestChange(
        kind=manifest.kind, name=manifest.name, action=action, fields=fields, drift=found.drift, note=note
    )
    kept = any(one.kept for one in found.drift)
    is_recorded = note or (
        recorded is not None
        and live is not None
        and recorded.digest == digest
        and recorded.object_id == live.object_id
        and recorded.version == (None if kept else live.version)
    )
    versioned = live is None or found.versioned
    return Change(number, manifest, digest, live, definition, shown, record=not is_recorded, versioned=versioned)


def _check_definition(manifest: Manifest, definition: Any, live: Live | None, secrets: Mapping[str, Any]) -> None:
    """Raise Invalid with the problems of a definition; of a channel with the secrets that it keeps."""
    if isinstance(definition, wire.NewChannel) and live is not None and kind_of(definition.target) == live.source.kind:
        target = kept_secrets(definition.target, live.source.stored.shown, secrets)
        definition = msgspec.structs.replace(definition, target=target)
    if isinstance(definition, wire.CalendarDays):
        check_days(manifest.name, definition)
    elif manifest.kind not in ("Job", "Workflow"):  # they are checked together
        _raise_problems(KINDS[manifest.kind].problems(manifest.name, definition))


def _raise_problems(problems: Sequence[Problem]) -> None:
    if problems:
        raise Invalid(problems[0].message, problems=tuple(problems))


async def _check_definitions(
    connection: Connection, plan: Plan, problems: ProblemList, requester: Requester, now_ms: int
) -> None:
    """Check jobs as intake does, and add the old and new fires of schedules that change."""
    places = [n for n, c in enumerate(plan.changes) if c.manifest.kind in ("Job", "Workflow") and c.writes]
    defined = [plan.changes[n] for n in places]
    planned = {
        c.manifest.name: calendar_of(c.manifest.name, c.definition)
        for c in plan.changes
        if c.manifest.kind == "Calendar"
    }
    specs = [job_spec(change) for change in defined]
    resolver = await Schedules.read(connection, specs, tenant=requester.tenant, now_ms=now_ms, planned=planned)
    writes = [job_write(change, spec) for change, spec in zip(defined, specs, strict=True)]
    is_job = [n for n, change in enumerate(defined) if change.manifest.kind == "Job"]
    wrong = await check_many(
        connection, [writes[n] for n in is_job], resolver, tenant=requester.tenant, may_exceed=requester.may_exceed
    )
    for position, error in wrong.items():
        problems.add_definition(defined[is_job[position]].number, error)
    fires = Fires(resolver, now_ms)
    for place, change, write in zip(places, defined, writes, strict=True):
        if change.manifest.kind == "Workflow":
            try:
                # Beside the event loop: a workflow may have thousands of steps.
                check = KINDS["Workflow"].problems
                _raise_problems(await asyncio.to_thread(check, change.manifest.name, change.definition))
                resolver.of(write.spec)
            except Invalid as error:
                problems.add_definition(change.number, error)
        before, after = fires.of(write)
        if before or after:
            shown = msgspec.structs.replace(change.shown, fires_before=before, fires_after=after)
            plan.changes[place] = replace(change, shown=shown)


def job_write(change: Change, spec: JobSpec) -> JobWrite:
    """The write of a job: a new one, or the next version of the one that was read."""
    known = None if change.live is None else change.live.source
    needs = bool(change.definition.needs) if change.manifest.kind == "Job" else None
    if known is None:
        return JobWrite(spec, needs=needs)
    return JobWrite(spec, known.before, known.exceeds_before, needs)


def job_spec(change: Change) -> JobSpec:
    """The definition of a job without its dependencies, or of the job of a workflow."""
    spec: JobSpec = change.definition.spec if change.manifest.kind == "Job" else job_of(change.definition)
    if change.live is None:
        return spec
    return msgspec.structs.replace(spec, paused=change.live.source.before.paused_at is not None)


async def _check_references(connection: Connection, plan: Plan, problems: ProblemList, requester: Requester) -> None:
    """Refuse channels that neither exist nor are in the manifests."""
    wanted = sorted({name for change in plan.changes if change.writes for _, name in _channels_of(change)})
    if not wanted:
        return
    known = await channels.known_channels(connection, tenant=requester.tenant, names=wanted)
    known |= {change.manifest.name for change in plan.changes if change.manifest.kind == "Channel"}
    for change in plan.changes:
        for pointer, name in _channels_of(change) if change.writes else ():
            if name not in known:
                message = f"there is no channel {name!r}"
                hint = "add a Channel of that name, or: mainspring channels add"
                problems.add_definition(change.number, refusal(pointer, message, hint, "unknown_channel"))


def _channels_of(change: Change) -> list[tuple[str, str]]:
    """Pointers to and names of the channels that a definition notifies."""
    if change.manifest.kind == "AlertRule":
        return [(f"/channels/{n}", name) for n, name in enumerate(change.definition.channels)]
    if change.manifest.kind in ("Job", "Workflow"):
        return [
            (f"/notify/{i}/to/{j}", name)
            for i, entry in enumerate(change.definition.notify)
            for j, name in enumerate(entry.to)
        ]
    return []


async def _plan_deletions(
    connection: Connection, plan: Plan, request: wire.ApplyManifests, present: set[Key], requester: Requester
) -> None:
    """Plan to delete what the owner has applied and neither the manifests nor `keep` contain."""
    tenant = requester.tenant
    now_ms = int(await database_now_ms(connection))
    kept = {tuple(entry.split("/", 1)) for entry in request.keep} | present
    owned = await manifests.owned_manifests(connection, tenant=tenant, owner=request.owner, limit=MAX_OWNED)
    left = sorted((key for key in owned if key not in kept), key=lambda key: (-ORDER.get(key[0], 0), key[1]))
    plan.more = max(0, len(left) - MAX_DELETIONS)
    left = left[:MAX_DELETIONS]
    _refuse_scopes([(0, Manifest(kind, name, {}), b"") for kind, name in left if kind in KINDS], requester)
    contents = await manifests.applied_contents(connection, tenant=tenant, keys=left) if left else {}
    for kind, adapter in ADAPTERS.items():
        wanted = {name: owned[kind, name] for k, name in left if k == kind}
        found = await adapter.read(connection, wanted, tenant=tenant) if wanted else {}
        for name, object_id in wanted.items():
            live = found.get(name)
            if live is None or (object_id is not None and live.object_id != object_id):
                plan.gone.append((kind, name))
            else:
                fires = lost_fires(live.source, now_ms) if kind in ("Job", "Workflow") else []
                plan.deletions.append(Deletion((kind, name), live, contents.get((kind, name), {}), fires))
    # What needs another job is deleted before it.
    depth = depths({d.key[1]: d.live.values.get("needs", ()) for d in plan.deletions if d.key[0] == "Job"})
    plan.deletions.sort(key=lambda d: (-ORDER[d.key[0]], -depth.get(d.key[1], 0), d.key[1]))


def _is_same_object(mark: AppliedMark, live: Live | None) -> bool:
    return live is not None and (mark.object_id is None or mark.object_id == live.object_id)


def _refuse_other_kind(manifest: Manifest, live: Live | None) -> None:
    if live is None or manifest.kind not in ("Job", "Workflow"):
        return
    other = "Workflow" if is_workflow(live.source.before) else "Job"
    if other != manifest.kind:
        message = f"there is a {other.lower()} {manifest.name!r}"
        raise refusal("/name", message, f"choose another name, or delete that {other.lower()} first", "name_taken")


def _without_secrets(manifest: Manifest, live: Live | None) -> tuple[Manifest, dict[str, str]]:
    """Split the secrets off a channel's manifest; a placeholder keeps the one that is stored."""
    if manifest.kind != "Channel":
        return manifest, {}
    given, secrets = split_secrets(manifest.given)
    for name, value in secrets.items():
        if value == STORED and (live is None or name not in live.secrets):
            message = f"no {name} is stored for the channel {manifest.name!r}"
            raise refusal(f"/target/{name}", message, "give it; a webhook without one gets a new one", "secret_needed")
    new = {name: value for name, value in secrets.items() if value != STORED}
    return Manifest(manifest.kind, manifest.name, given), new


async def _with_job_name(connection: Connection, manifest: Manifest, *, tenant: int) -> Manifest:
    """Replace the id of a blackout's or reservation's job by its name, as the server shows it."""
    ref = manifest.given.get("job")
    if manifest.kind not in ("Blackout", "Reservation") or not isinstance(ref, str) or not refs.is_id(ref):
        return manifest
    row = await refs.find_job(connection, ref, tenant=tenant)
    return manifest if row is None else Manifest(manifest.kind, manifest.name, {**manifest.given, "job": row.name})


def _other_owner(manifest: Manifest, mark: AppliedMark) -> Conflict:
    message = f"{manifest.kind} {manifest.name!r} belongs to the owner {mark.owner!r}"
    problem = Problem("/metadata/name", message, "apply it as that owner, or take it over with --take-over")
    return Conflict(message, code="other_owner", problems=(problem,))
