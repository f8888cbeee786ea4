"""Settings of plug-in tasks, checked by what the workers that have the plug-in said about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mainspring.domain.errors import Invalid, invalid
from mainspring.domain.job import JobSpec
from mainspring.domain.json_schema import problems, schema_problem
from mainspring.domain.plugin import OWN_KINDS, TYPE, PluginTask
from mainspring.store import plugins
from mainspring.store.db import Connection, Database


async def check_settings(connection: Connection, spec: JobSpec, *, tenant: int) -> None:
    """Refuses settings that the plug-in would not take. One that no worker has ever had is checked when it executes."""
    if not isinstance(spec.task, PluginTask):
        return
    schema = await plugins.plugin_schema(connection, tenant=tenant, type_=spec.task.type)
    if schema is None:
        return
    if found := tuple(problems(spec.task.settings, schema, "/task/settings", templates=True)):
        raise Invalid(found[0].message, problems=found)


async def learn(connection: Connection, schemas: Mapping[str, dict[str, Any]], *, tenant: int, shared: bool) -> None:
    """Remembers what a worker says of its plug-ins."""
    for type_, schema in schemas.items():
        if not TYPE.match(type_) or type_ in OWN_KINDS:
            raise invalid(
                f"/schemas/{type_}", f"{type_!r} can't be a plug-in's type", hint="lower case, no kind of ours"
            )
        if (wrong := schema_problem(schema)) is not None:
            raise invalid(f"/schemas/{type_}", f"the schema of {type_!r} can't be used: {wrong}")
    if schemas:
        await plugins.upsert_plugins(connection, tenant=tenant, schemas=schemas, shared=shared)


async def list_schemas(database: Database, *, tenant: int, limit: int = 50) -> dict[str, dict[str, Any]]:
    """What the plug-ins that are known take, by type."""
    async with database.connection() as connection:
        return await plugins.list_plugins(connection, tenant=tenant, limit=limit)
