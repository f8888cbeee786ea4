"""Patterns of file paths: what they match, and that matching takes linear time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.file_pattern import MAX_FOLDERS, FilePattern, pattern_problems
from tests.support.growth import Pump, finding

MATCHES = [
    ("*", "a.csv", True),
    ("*", "a/b.csv", False),
    ("*", ".hidden", False),
    (".*", ".hidden", True),
    ("*.csv", "a.csv", True),
    ("*.csv", "a.csv.part", False),
    ("*.CSV", "a.csv", False),
    ("report-?.json", "report-1.json", True),
    ("report-[0-9].json", "report-x.json", False),
    ("report-[!0-9].json", "report-x.json", True),
    ("2026-*/*.csv", "2026-01/a.csv", True),
    ("2026-*/*.csv", "2026-01/x/a.csv", False),
    ("**/*.csv", "a.csv", True),
    ("**/*.csv", "x/y/a.csv", True),
    ("**/*.csv", "x/.trash/a.csv", False),
    ("in/**/done/*", "in/done/a", True),
    ("in/**/done/*", "in/x/done/y/done/a", True),
    ("in/**/done/*", "in/x/done/y/a", False),
    ("**/x/**/y", "x/a/x/b/y", True),
    ("a", "a/", False),
]


@pytest.mark.parametrize(("pattern", "path", "expected"), MATCHES)
def test_what_a_pattern_matches(pattern: str, path: str, expected: bool) -> None:
    assert FilePattern(pattern).matches(path) is expected


names = st.text(st.sampled_from("ab."), min_size=1, max_size=3).filter(lambda name: name not in (".", ".."))
paths = st.lists(names, min_size=1, max_size=5).map("/".join)
patterns = st.lists(st.one_of(names, st.sampled_from(["*", "**", "a*", "?"])), min_size=1, max_size=5).map("/".join)


def naive(parts: list[str], path: list[str]) -> bool:
    """Matching by trying every choice."""
    if not parts:
        return not path
    if parts[0] == "**":
        return naive(parts[1:], path) or (bool(path) and path[0][0] != "." and naive(parts, path[1:]))
    return bool(path) and FilePattern(parts[0]).matches(path[0]) and naive(parts[1:], path[1:])


@given(patterns, paths)
def test_matching_agrees_with_trying_every_choice(pattern: str, path: str) -> None:
    if pattern.split("/")[-1] != "**":
        assert FilePattern(pattern).matches(path) is naive(pattern.split("/"), path.split("/"))


@given(patterns, paths)
def test_every_folder_above_a_match_may_contain_it(pattern: str, path: str) -> None:
    found = FilePattern(pattern)
    if pattern.split("/")[-1] != "**" and found.matches(path):
        folders = path.split("/")[:-1]
        assert all(found.may_contain("/".join(folders[: n + 1])) for n in range(len(folders)))


def test_folders_that_cannot_contain_a_match_are_not_read() -> None:
    assert not FilePattern("*.csv").may_contain("x")
    assert not FilePattern("2026/*.csv").may_contain("2025")
    assert FilePattern("**/*.csv").may_contain("x/y")
    assert not FilePattern("**/*.csv").may_contain("/".join("x" * (MAX_FOLDERS + 1)))


@pytest.mark.parametrize("pattern", ["*a*a*a*a*a*a*b", "**/a/**/a/**/a/**/b", "?" * 100 + "*b", "*[a-z]*[a-z]*[0-9]"])
@pytest.mark.parametrize("pump", [Pump("", "a"), Pump("", "a/"), Pump("", "ab", "c")], ids=str)
def test_matching_takes_linear_time(pattern: str, pump: Pump) -> None:
    assert not finding(FilePattern(pattern).matches, pump, cap=30_000)


@pytest.mark.parametrize(
    "text", ["", "/a", "a//b", "../a", "a/.", "**.csv", "a/**", "a\nb", "x" * 201, "a/" * 16 + "a"]
)
def test_patterns_that_are_refused(text: str) -> None:
    (problem,) = pattern_problems(text, "/source/pattern")
    assert problem.pointer == "/source/pattern" and problem.hint
