"""Empties tables of a test's own database, append-only ones too."""

from __future__ import annotations


def emptying(*tables: str) -> str:
    """Return a statement that truncates tables. As their owner it switches off, for so long, what refuses that."""
    return f"""
DO $$
DECLARE
    refusing regclass[] := ARRAY(SELECT tgrelid::regclass FROM pg_trigger WHERE tgname = 'never_truncated');
    one regclass;
BEGIN
    FOREACH one IN ARRAY refusing LOOP EXECUTE format('ALTER TABLE %s DISABLE TRIGGER never_truncated', one); END LOOP;
    TRUNCATE {", ".join(tables)} CASCADE;
    FOREACH one IN ARRAY refusing LOOP EXECUTE format('ALTER TABLE %s ENABLE TRIGGER never_truncated', one); END LOOP;
END $$;
"""
