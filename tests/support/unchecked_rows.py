"""Rows for every table of a test's own database, without regard to what they mean."""

from __future__ import annotations

from mainspring.store.db import Connection

_CONSTRAINTS = """
DO $$
DECLARE
    found record;
BEGIN
    FOR found IN SELECT conrelid::regclass AS name, conname FROM pg_constraint JOIN pg_class c ON c.oid = conrelid
                 WHERE connamespace = 'mainspring'::regnamespace AND contype IN ('c', 'f') AND conparentid = 0
                   AND coninhcount = 0 LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT IF EXISTS %I', found.name, found.conname);
    END LOOP;
    FOR found IN SELECT DISTINCT tgrelid::regclass AS name FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid
                 WHERE c.relnamespace = 'mainspring'::regnamespace AND NOT tgisinternal LOOP
        EXECUTE format('ALTER TABLE %s DISABLE TRIGGER USER', found.name);
    END LOOP;
END $$
"""


async def without_constraints(owner: Connection) -> None:
    """Drop CHECK and foreign key constraints and disable triggers, so that any row can be inserted."""
    await owner.execute(_CONSTRAINTS)


async def insert(connection: Connection, table: str, tenant: int) -> None:
    """Insert a row of a tenant whose other columns have some value."""
    columns = await connection.fetch(
        "SELECT attname AS name, format_type(atttypid, NULL) AS type FROM pg_attribute"
        " WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attidentity <> 'a'"
        " AND attgenerated = ''",
        table,
    )
    names = [c["name"] for c in columns]
    values = [str(tenant) if c["name"] == "tenant_id" else _value(c["type"], tenant) for c in columns]
    await connection.execute(f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)}")


def _value(type_: str, tenant: int) -> str:
    if type_.endswith("[]"):
        return "'{}'"
    return {
        "uuid": "gen_random_uuid()",
        "jsonb": "'{}'",
        "bytea": f"decode('0{tenant}', 'hex')",
        "boolean": "false",
        "date": "date '2026-01-01'",
        "timestamp with time zone": "db_now()",
        "text": f"'text {tenant}'",
        "name": f"'name {tenant}'",
    }.get(type_, str(tenant))
