"""Each migration only adds: what a program of the release before it reads and writes stays as it was."""

from __future__ import annotations

import re

import pytest

from mainspring.store.migrate import Migration, migrations

BODY = re.compile(r"\$(\w*)\$.*?\$\1\$", re.DOTALL)
COMMENT = re.compile(r"--[^\n]*")
TAKEN_AWAY = {
    "a table, view or type": r"\bDROP (TABLE|VIEW|MATERIALIZED VIEW|TYPE|SCHEMA|SEQUENCE)\b",
    "a column": r"\bDROP COLUMN\b",
    "a name": r"\bRENAME\b",
    "the type of a column": r"\bALTER (COLUMN )?\w+ (SET DATA )?TYPE\b",
    "null in a column": r"\bALTER (COLUMN )?\w+ SET NOT NULL\b",
    "inserts that do not know a column": (
        r"\bADD COLUMN (IF NOT EXISTS )?\w+ (?![^,;]*\b(DEFAULT|GENERATED)\b)[^,;]*\bNOT NULL\b"
    ),
}


def taken_away(sql: str) -> list[str]:
    """What a migration takes from older programs. Bodies of functions run later, on what they name themselves."""
    text = re.sub(r"\s+", " ", BODY.sub("''", COMMENT.sub("", sql)))
    return [what for what, pattern in TAKEN_AWAY.items() if re.search(pattern, text, re.IGNORECASE)]


@pytest.mark.requirement(151)
@pytest.mark.parametrize("migration", migrations()[1:], ids=lambda m: f"{m.number:04}")
def test_it_takes_nothing_away(migration: Migration) -> None:
    assert taken_away(migration.sql) == []


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("DROP VIEW all_executions;", "a table, view or type"),
        ("ALTER TABLE jobs DROP COLUMN queue;", "a column"),
        ("ALTER TABLE jobs RENAME COLUMN queue TO line;", "a name"),
        ("ALTER TABLE jobs ALTER queue TYPE int USING 1;", "the type of a column"),
        ("ALTER TABLE jobs ALTER COLUMN queue SET NOT NULL;", "null in a column"),
        ("ALTER TABLE jobs ADD COLUMN owner text NOT NULL;", "inserts that do not know a column"),
    ],
)
def test_what_would_break_older_programs_is_found(sql: str, what: str) -> None:
    assert taken_away(sql) == [what]


def test_what_adds_is_accepted() -> None:
    sql = "ALTER TABLE jobs ADD COLUMN owner text, ADD COLUMN rank int NOT NULL DEFAULT 0; CREATE TABLE t (a int);"
    assert taken_away(sql) == []
