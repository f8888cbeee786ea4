"""The arithmetic of availability: it rests on measured takeover times, and its sums are right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_sizing import ROW, number, product

DOCS = Path(__file__).parents[2] / "docs"
FAILOVER = DOCS.parent / "tests" / "faults" / "test_failover.py"
PAGE = (DOCS / "explanation" / "availability.md").read_text()
MEASURED = re.compile(r'^\| [^|]+ \| ([\d.]+) \| (\w+), "([^"]+)"', re.MULTILINE)
RESUMED_S = float(re.findall(r"^RESUMED_S = ([\d.]+)$", FAILOVER.read_text(), re.MULTILINE)[0])
YEAR_S = 365 * 86_400


def recorded() -> dict[str, tuple[float, float]]:
    """What the page takes for each event, and what the fault tests recorded last."""
    reliability = (DOCS / "reliability.md").read_text()
    found = {}
    for taken, name, title in MEASURED.findall(PAGE):
        section = reliability.partition(f"## {title}\n")[2].partition("\n## ")[0]
        value = re.search(rf"^\| {name} \| ([\d.]+) \|$", section, re.MULTILINE)
        assert value is not None, title
        found[title] = (float(taken), float(value[1]))
    return found


def test_the_sums_take_no_less_than_the_fault_tests_recorded() -> None:
    found = recorded()
    assert len(found) == 3
    for title, (taken, value) in found.items():
        assert value <= taken, title
    (killed, hung, restarted) = (taken for taken, _ in found.values())
    sums = PAGE.partition("## 99.99 %")[2]
    assert f"| 52 × {killed:g} |" in sums and f"| 104 × {restarted:g} |" in sums
    assert f"| 12 × (5 + {hung - 2:g}) |" in sums, "the lease of the fault test is 2 s"
    assert "| 4 × (30 + 10) |" in sums and RESUMED_S == 10


@pytest.mark.requirement(147)
@pytest.mark.parametrize("goal", [99.99, 99.95])
def test_the_gaps_of_a_year_leave_the_promised_availability(goal: float) -> None:
    section = PAGE.partition(f"## {goal} %")[2].partition("\n## ")[0]
    rows = [(product(how), number(result)) for _, how, result in ROW.findall(section)]
    assert len(rows) >= 5
    for computed, written in rows:
        assert written == pytest.approx(computed, rel=0.05)
    found = re.search(r"^Sum: ([\d,]+) s a year, or ([\d.]+) %", section, re.MULTILINE)
    assert found is not None
    total = sum(computed for computed, _ in rows)
    assert number(found[1]) == pytest.approx(total, rel=0.005)
    assert float(found[2]) == pytest.approx(100 * (1 - total / YEAR_S), abs=0.0002)
    assert float(found[2]) >= goal
