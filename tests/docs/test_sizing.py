"""The arithmetic of the sizing guide: its tables follow from the figures that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "sizing.md").read_text()
ROW = re.compile(r"^\| ([^|]+) \| ([\d ×().+/,]+) \| ([\d.,]+) \|$", re.MULTILINE)


def number(text: str) -> float:
    return float(text.replace(",", ""))


def product(text: str) -> float:
    """Sums of products, with parentheses around sums: all that the tables have."""
    while (inner := re.search(r"\(([^()]*)\)", text)) is not None:
        text = text.replace(inner[0], str(product(inner[1])))
    total = 0.0
    for term in text.split("+"):
        value = 1.0
        for factor in term.split("×"):
            top, *bottom = (number(part) for part in factor.split("/"))
            value *= top / bottom[0] if bottom else top
        total += value
    return total


@pytest.mark.requirement(152)
def test_the_cost_of_a_job_is_what_its_parts_add_up_to_and_less_than_a_cent() -> None:
    rows = {name: (product(how), number(result)) for name, how, result in ROW.findall(PAGE)}
    assert len(rows) == 7
    for name, (computed, written) in rows.items():
        assert written == pytest.approx(computed, rel=0.01), name
    total = number(re.search(r"^\| sum \| \| ([\d,]+) \|$", PAGE, re.MULTILINE)[1])  # type: ignore[index]
    per_job = rows.pop("per job")[0]
    assert total == pytest.approx(sum(computed for computed, _ in rows.values()), rel=0.01)
    assert per_job == pytest.approx(total / 1e6) and per_job < 0.01


def test_the_table_follows_from_the_measured_figures() -> None:
    measured = re.findall(r"^\| [\d,]+ per second[^|]*\| ([\d,]+):[^|]*\| ([\d,]+) \| ([\d,]+) \|$", PAGE, re.MULTILINE)
    plain, output = ([number(value) for value in row] for row in measured)
    rows = re.findall(
        r"^\| (\d+) million \| ([\d,]+) \| [\d.]+ to ([\d.]+) \| [\d.]+ to ([\d.]+) GB \|", PAGE, re.MULTILINE
    )
    assert [row[0] for row in rows] == ["1", "10", "50", "100"]
    for millions, per_s, cores, wal in rows:
        n = float(millions)
        assert number(per_s) == pytest.approx(n * 1e6 / 86_400, rel=0.04)
        assert number(wal) == pytest.approx(n * output[1] / 1000, rel=0.02)
        if n >= 50:
            assert number(cores) == pytest.approx(n * output[0] / 86_400, rel=0.08)
    assert plain[0] < output[0]
