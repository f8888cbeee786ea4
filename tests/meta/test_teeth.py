"""The planted bugs fit the tree: each edit has its place, and the tests that must catch it exist."""

from __future__ import annotations

import pytest

from tools.teeth.planting import Bug, Edit, bugs, edited
from tools.tree import ROOT

AT_LEAST = 40


@pytest.mark.parametrize("bug", bugs(), ids=lambda bug: bug.name)
def test_a_planted_bug_fits_the_tree_and_its_tests_exist(bug: Bug) -> None:
    assert edited(bug)
    for test in bug.tests:
        file, _, name = test.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert not name or f"def {name}(" in text, f"{file} has no {name}"


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    names = [bug.name for bug in bugs()]
    assert len(names) == len(set(names)) >= AT_LEAST


def test_an_edit_that_no_longer_fits_is_noticed() -> None:
    bug = Bug("gone", ("tests/meta/test_teeth.py",), (Edit("pyproject.toml", "no such text", ""),))
    with pytest.raises(ValueError, match="is 0 times in"):
        edited(bug)
