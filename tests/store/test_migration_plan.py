"""The plan of missing migrations: which statement locks what, for how long."""

from __future__ import annotations

import pytest

from mainspring.store.migrate import Migration
from mainspring.store.migration_plan import TableSize, plan

SIZES = {"jobs": TableSize(bytes=1_000_000_000, rows=2_000_000), "shards": TableSize(bytes=8192, rows=64)}


@pytest.mark.parametrize(
    ("sql", "lock", "blocks", "seconds"),
    [
        ("ALTER TABLE jobs ADD COLUMN x int", "ACCESS EXCLUSIVE", "all", 0.05),
        ("ALTER TABLE jobs ADD CONSTRAINT c CHECK (x > 0)", "ACCESS EXCLUSIVE", "all", 10.05),
        ("ALTER TABLE jobs ADD CONSTRAINT c CHECK (x > 0) NOT VALID", "ACCESS EXCLUSIVE", "all", 0.05),
        ("ALTER TABLE jobs VALIDATE CONSTRAINT c", "SHARE UPDATE EXCLUSIVE", "nothing", 10.05),
        ("CREATE UNIQUE INDEX i ON jobs (name)", "SHARE", "writes", 10.05),
        ("CREATE INDEX CONCURRENTLY i ON jobs (name)", "SHARE UPDATE EXCLUSIVE", "nothing", 10.05),
        ("UPDATE jobs SET x = 1", "ROW EXCLUSIVE", "changes of the same rows", 100.05),
        ("-- why\nCREATE TRIGGER t BEFORE UPDATE ON jobs EXECUTE FUNCTION f()", "SHARE ROW EXCLUSIVE", "writes", 0.05),
    ],
)  # fmt: skip
def test_statements(sql: str, lock: str, blocks: str, seconds: float) -> None:
    (found,) = plan([Migration(7, "x", f"{sql};\n")], SIZES)
    assert (found.number, found.table, found.lock, found.blocks) == (7, "jobs", lock, blocks)
    assert found.seconds == pytest.approx(seconds)


def test_a_lock_lasts_until_the_end_of_the_migration() -> None:
    sql = "CREATE INDEX i ON jobs (x); ALTER TABLE jobs ADD COLUMN y int; CREATE INDEX j ON jobs (y);"
    assert [found.blocks for found in plan([Migration(7, "x", sql)], SIZES)] == ["writes", "all", "all"]


def test_new_tables_and_bodies_of_functions_lock_nothing() -> None:
    sql = (
        "CREATE TABLE holds (x int); CREATE INDEX i ON holds (x); CREATE FUNCTION f() AS $$ UPDATE jobs SET x = 1; $$;"
    )
    assert plan([Migration(1, "x", sql)], SIZES) == []
