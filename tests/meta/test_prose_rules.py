"""The word list finds what it forbids, in every kind of text that users read."""

from __future__ import annotations

import pytest

from tools.prose_rules import WORDS, check_text, check_tree, rules

LIST = rules(WORDS.read_text(encoding="utf-8"))


def found(path: str, text: str) -> list[int]:
    return [finding.line for finding in check_text(path, text, LIST)]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("docs/page.md", "Whoever settles it releases the slot."),
        ("src/mainspring/a.py", '"""What became of an execution."""'),
        ("src/mainspring/a.py", "x = 1  # nobody reads it"),
        ("src/mainspring/a.py", 'raise ValueError(f"{x} is told: why is not said")'),
        ("src/mainspring/web/templates/a.html", "<h2>Whom it tells</h2>"),
        ("src/mainspring/store/sql/a.sql", "-- Rows that nobody owns."),
        ("src/mainspring/a.py", "class Deed: ..."),
        ("src/mainspring/a.py", "async def tell_late(): ..."),
        ("src/mainspring/desk.py", ""),
    ],
)
def test_a_forbidden_word_is_found(path: str, text: str) -> None:
    assert set(found(path, text)) == {1}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("docs/page.md", "The process that settles it releases the slot."),
        ("docs/page.md", "```\nnobody 1 0.0 postgres\n```"),
        ("src/mainspring/a.py", "told_at = nobody = 1"),
        ("src/mainspring/a.py", "x = 1  # nobody:x:65534 is an account (prose: ok)"),
        ("src/mainspring/store/sql/a.sql", "SELECT told FROM alerts;"),
        ("src/mainspring/a.py", "def intellect(): ..."),
    ],
)
def test_code_and_allowed_lines_are_not_found(path: str, text: str) -> None:
    assert found(path, text) == []


def test_a_malformed_rule_names_its_line() -> None:
    with pytest.raises(ValueError, match="line 2 of the word list"):
        rules("# heading\nwhoever without advice")


def test_the_tree_uses_none_of_them() -> None:
    assert [str(finding) for finding in check_tree()] == []
