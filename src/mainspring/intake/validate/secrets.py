"""Check the references of a job: each secret exists, and may go where the job would send it."""

from __future__ import annotations

from mainspring.domain.errors import Invalid, Problem
from mainspring.domain.job import JobSpec
from mainspring.domain.plaintext import plaintext_problems
from mainspring.domain.secret_use import called_hosts, used
from mainspring.store import secrets
from mainspring.store.db import Connection


def check_plaintext(spec: JobSpec, before: JobSpec | None = None, *, at: str = "") -> None:
    """Refuse values that look like secrets, except those that the job had before: it keeps working."""
    if found := plaintext_problems(spec, before):
        moved = tuple(Problem(at + each.pointer, each.message, each.hint) for each in found)
        raise Invalid(moved[0].message, code="plaintext_secret", problems=moved)


async def check_references(connection: Connection, spec: JobSpec, *, tenant: int, at: str = "") -> None:
    """Refuse references to unknown secrets, and to secrets that the job may not use. `at` precedes the pointers."""
    references = used(spec.task, spec.params)
    if not references:
        return
    rows = await secrets.secrets_by_name(connection, tenant=tenant, names=list({name for _, name in references}))
    hosts = called_hosts(spec.task)
    found = []
    for pointer, name in references:
        if (row := rows.get(name)) is None:
            hint = f"create it with: mainspring secrets set {name} --job {spec.name}"
            found.append(Problem(at + pointer, f"there is no secret {name!r}", hint))
        elif (refusal := row.to.refusal(job=spec.name, queue=spec.queue_name, hosts=hosts)) is not None:
            hint = f"change its destinations with: mainspring secrets set {name} --keep-value --job ..."
            found.append(Problem(at + pointer, f"the secret {name!r} {refusal}", hint))
    if found:
        raise Invalid(found[0].message, code="secret_refused", problems=tuple(found))
