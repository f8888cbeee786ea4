"""Give an attempt the values of its secrets, once it runs: checked again, recorded, and never stored."""

from __future__ import annotations

from uuid import UUID

import structlog

from mainspring import wire
from mainspring.domain.errors import Conflict
from mainspring.domain.job import Definition
from mainspring.domain.secret_use import called_hosts, wanted
from mainspring.intake.audit_bursts import AuditBursts, Occurrence
from mainspring.store import audit, secrets
from mainspring.store.audit import AuditSubject
from mainspring.store.db import Connection, Database
from mainspring.store.definitions import Definitions
from mainspring.store.secrets import RunningAttempt, SecretRow
from mainspring.vault.keyring import KeyMissing, Tampered
from mainspring.vault.providers import ProviderFailed
from mainspring.vault.vault import Vault

log = structlog.get_logger()

USES_PER_MINUTE = 60
"""Uses of secrets by one job that are audit entries of their own; further ones in that minute are counted."""


async def deliver(
    database: Database,
    definitions: Definitions,
    vault: Vault,
    bursts: AuditBursts,
    *,
    session_id: UUID,
    execution_id: UUID,
    attempt: int,
    by: str,
) -> wire.AttemptSecrets:
    """Return the secrets of an attempt that the session runs. `problem` says why the attempt cannot have them."""
    async with database.connection() as connection:
        running = await secrets.running_attempt(
            connection, session_id=session_id, execution_id=execution_id, attempt=attempt
        )
        if running is None:
            raise Conflict(f"the session does not run attempt {attempt} of {execution_id}", code="not_attempt_owner")
        version = running.job_id, running.version
        definition = (await definitions.get([version], connection))[version]
        names = wanted(definition.task, definition.params, running.params or {})
        rows = await secrets.secrets_by_name(connection, tenant=running.tenant, names=names)
    if (refused := _refusal(names, rows, running, definition)) is not None:
        return wire.AttemptSecrets(values={}, problem=refused, retry=False)
    try:
        values = {name: await vault.value_of(rows[name]) for name in names}
    except (KeyMissing, Tampered, ProviderFailed) as error:
        log.warning("secret.unavailable", execution=str(execution_id), error=error.message)
        return wire.AttemptSecrets(values={}, problem=error.message)
    if bursts.admits(("secret.use", running.job_id), most=USES_PER_MINUTE):
        async with database.transaction() as connection:
            await _record(connection, running, definition, rows, execution_id=execution_id, attempt=attempt, by=by)
    else:
        for name, row in rows.items():
            used = {"job": definition.name, "version": row.version}
            bursts.note(Occurrence(running.tenant, "secret.use", by, name, name, used))
    return wire.AttemptSecrets(values=values)


def _refusal(
    names: list[str], rows: dict[str, SecretRow], running: RunningAttempt, definition: Definition
) -> str | None:
    hosts = called_hosts(definition.task)
    for name in names:
        if (row := rows.get(name)) is None:
            return f"there is no secret {name!r}"
        refusal = row.to.refusal(job=definition.name, queue=running.queue, hosts=hosts)
        if refusal is not None:
            return f"the secret {name!r} {refusal}"
    return None


async def _record(
    connection: Connection,
    running: RunningAttempt,
    definition: Definition,
    rows: dict[str, SecretRow],
    *,
    execution_id: UUID,
    attempt: int,
    by: str,
) -> None:
    used = {"job": definition.name, "execution_id": str(execution_id), "attempt": attempt}
    entries = [AuditSubject(name, name, used | {"version": row.version}) for name, row in sorted(rows.items())]
    await audit.record_all(connection, "secret.use", entries, tenant=running.tenant, by=by)
    await secrets.see_secrets_used(connection, tenant=running.tenant, names=sorted(rows))
