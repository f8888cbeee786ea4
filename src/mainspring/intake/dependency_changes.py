"""Change the dependencies of many jobs in the caller's transaction, with a number of statements that does not grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from mainspring.domain.duration import optional_seconds
from mainspring.ids import shard_of
from mainspring.intake.jobs.bulk import changed_meanwhile
from mainspring.manifest.needs import Need, cycles
from mainspring.store import audit, jobs, needs, overlaps, shards
from mainspring.store.audit import AuditSubject
from mainspring.store.db import Connection
from mainspring.store.needs import NeedRow


@dataclass(frozen=True, slots=True)
class NeedsChange:
    """The dependencies of one job before and after a change, by the name of the needed job."""

    child: str
    before: Mapping[str, Need]
    after: Mapping[str, Need]

    @property
    def added(self) -> list[str]:
        return [name for name in self.after if name not in self.before]

    @property
    def removed(self) -> list[str]:
        return [name for name in self.before if name not in self.after]

    @property
    def written(self) -> list[str]:
        """Those that are new, or have other limits than before."""
        return [name for name, need in self.after.items() if self.before.get(name) != need]


async def graph_after(
    connection: Connection, changes: Sequence[NeedsChange], *, tenant: int
) -> Mapping[str, Sequence[str] | set[str]]:
    """The part of the graph in which a cycle could be: what the changed jobs need, directly or not, afterwards."""
    added = sorted({name for change in changes for name in change.added})
    graph: dict[str, Any] = await needs.needs_above(connection, tenant=tenant, names=added) if added else {}
    return graph | {change.child: list(change.after) for change in changes}


async def change_many(connection: Connection, changes: Sequence[NeedsChange], *, tenant: int, by: str) -> None:
    """Write dependencies. The caller has locked the tenant's dependencies and all shards, and checked the changes.

    Raises Conflict if a job has been deleted, or another change would complete a cycle.
    """
    names = {name for change in changes for name in (change.child, *change.written, *change.removed)}
    found = await jobs.find_jobs(connection, tenant=tenant, names=sorted(names), job_ids=[])
    if missing := sorted(names - found.keys()):
        raise changed_meanwhile(missing[0])
    for cycle in cycles(await graph_after(connection, changes, tenant=tenant)):
        raise changed_meanwhile(cycle[0])
    ids = {name: found[name][0] for name in names}
    children = sorted(ids[change.child] for change in changes)
    await overlaps.lock_jobs(connection, job_ids=children)  # before their needs, in the order of execute_ready
    if not await needs.change_needs(
        connection,
        tenant=tenant,
        by=by,
        wanted=[_row(ids, change, name) for change in changes for name in change.written],
        unwanted=[NeedRow(ids[change.child], ids[name]) for change in changes for name in change.removed],
    ):
        raise changed_meanwhile(changes[0].child)
    bumped = await shards.bump_edited_shards(connection, shards={shard_of(child) for child in children})
    numbers = {child: bumped[shard_of(child)][0] for child in children}
    await needs.mark_all_needing(connection, tenant=tenant, changes=numbers)
    await needs.release(connection, children=children)
    await _record(connection, changes, ids, tenant=tenant, by=by)


def _row(ids: Mapping[str, UUID], change: NeedsChange, name: str) -> NeedRow:
    need = change.after[name]
    return NeedRow(ids[change.child], ids[name], optional_seconds(need.timeout), optional_seconds(need.wait))


async def _record(
    connection: Connection, changes: Sequence[NeedsChange], ids: Mapping[str, UUID], *, tenant: int, by: str
) -> None:
    for action, verb in (("job.need", "written"), ("job.unneed", "removed")):
        entries = [
            AuditSubject(str(ids[change.child]), change.child, {"parent": name})
            for change in changes
            for name in getattr(change, verb)
        ]
        await audit.record_all(connection, action, entries, tenant=tenant, by=by)
