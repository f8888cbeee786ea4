"""Check settings of plug-in tasks against the schemas that workers registered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mainspring.domain.errors import Invalid, invalid
from mainspring.domain.job import JobSpec
from mainspring.domain.json_schema import problems, schema_problem
from mainspring.domain.plugin import OWN_KINDS, TYPE, PluginTask
from mainspring.store import plugins
from mainspring.store.db import Connection


async def check_settings(connection: Connection, spec: JobSpec, *, tenant: int) -> None:
    """Refuse settings that violate the plug-in's schema. Without a registered schema, the worker checks them."""
    if not isinstance(spec.task, PluginTask):
        return
    schema = await plugins.plugin_schema(connection, tenant=tenant, type_=spec.task.type)
    if schema is None:
        return
    if found := tuple(problems(spec.task.settings, schema, "/task/settings", templates=True)):
        raise Invalid(found[0].message, problems=found)


async def register_schemas(
    connection: Connection, schemas: Mapping[str, dict[str, Any]], *, tenant: int, shared: bool
) -> None:
    """Store the schemas of a worker's plug-ins."""
    for type_, schema in schemas.items():
        if not TYPE.match(type_) or type_ in OWN_KINDS:
            raise invalid(
                f"/schemas/{type_}",
                f"{type_!r} is not a valid plug-in type",
                hint="lower case, and not a built-in kind",
            )
        if (wrong := schema_problem(schema)) is not None:
            raise invalid(f"/schemas/{type_}", f"invalid schema of {type_!r}: {wrong}")
    if schemas:
        await plugins.upsert_plugins(connection, tenant=tenant, schemas=schemas, shared=shared)
