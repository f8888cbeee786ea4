"""References from channels and triggers to secrets: checked when they are saved, and replaced by values when used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mainspring.domain.errors import Conflict, Invalid, Problem
from mainspring.domain.secret import Destinations, name_problems, whole_reference
from mainspring.store import secrets
from mainspring.store.db import Connection, Database
from mainspring.vault.vault import Vault

Refusal = Callable[[Destinations, str | None], str | None]
"""Says why a secret may not be used here, given its destinations, and its value if that is known."""


class SecretRefused(Conflict):
    """A secret does not exist, or its destinations do not include this use."""

    code = "secret_refused"


def references_in(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the secrets that fields refer to, by field."""
    texts = {field: value for field, value in fields.items() if isinstance(value, str)}
    return {field: name for field, text in texts.items() if (name := whole_reference(text)) is not None}


async def check_references(
    connection: Connection, fields: Mapping[str, Any], refusal: Refusal, *, tenant: int, at: str
) -> None:
    """Raise Invalid for a reference that is misspelled, unknown or not allowed. `at`: JSON pointer of the fields."""
    found = references_in(fields)
    if not found:
        return
    rows = await secrets.secrets_by_name(connection, tenant=tenant, names=list(found.values()))
    problems = []
    for field, name in found.items():
        pointer = f"{at}/{field}"
        if name_problems(name):
            problems.append(Problem(pointer, f"{name[:100]!r} is not the name of a secret", "secret://name"))
        elif (row := rows.get(name)) is None:
            problems.append(Problem(pointer, f"there is no secret {name!r}", "create it: mainspring secrets set"))
        elif (refused := refusal(row.to, None)) is not None:
            hint = "name it in the destinations: mainspring secrets set --keep-value"
            problems.append(Problem(pointer, f"the secret {name!r} {refused}", hint))
    if problems:
        raise Invalid(problems[0].message, code="bad_reference", problems=tuple(problems))


async def resolved(
    database: Database, vault: Vault, fields: Mapping[str, Any], refusal: Refusal, *, tenant: int
) -> dict[str, Any]:
    """Replace references by values. Raises SecretRefused, KeyMissing, Tampered or ProviderFailed, without a value."""
    found = references_in(fields)
    if not found:
        return dict(fields)
    async with database.connection() as connection:
        rows = await secrets.secrets_by_name(connection, tenant=tenant, names=list(found.values()))
    values = dict(fields)
    for field, name in found.items():
        if (row := rows.get(name)) is None:
            raise SecretRefused(f"there is no secret {name!r}")
        refused = refusal(row.to, None)
        if refused is None:
            values[field] = await vault.value_of(row)
            refused = refusal(row.to, values[field])
        if refused is not None:
            raise SecretRefused(f"the secret {name!r} {refused}")
    async with database.connection() as connection:
        await secrets.see_secrets_used(connection, tenant=tenant, names=sorted(rows))
    return values
