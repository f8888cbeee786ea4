"""Names of files that executions leave."""

from __future__ import annotations

import pytest

from mainspring.domain.artifact import name_problem


@pytest.mark.parametrize("name", ["a", "report/2026.csv", "…", "a b", ".hidden", "..a", "a..", "x" * 200])
def test_relative_paths_are_names(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/etc/passwd",
        "..",
        "../a",
        "a/../b",
        "a/..",
        "a//b",
        "./a",
        "a/",
        "a\0b",
        "a\nb",
        "a\\b",
        "\u202ea",
        "x" * 201,
        "\ud800",
    ],
)
def test_what_leads_elsewhere_or_hides_something_is_none(name: str) -> None:
    assert name_problem(name)
