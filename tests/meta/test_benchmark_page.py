"""The page of benchmarks says what benchmarks/RESULTS.md has, and says so where another system is ahead."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.benchmark_page import RESULTS, Figure, Workload, pages, workloads

PAGES = pages(RESULTS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", sorted(PAGES), ids=lambda path: path.name)
def test_it_is_current(path: Path) -> None:
    assert path.exists() and path.read_text(encoding="utf-8") == PAGES[path], "run: python -m tools.benchmark_page"


def test_a_durable_system_that_is_ahead_is_named() -> None:
    rows = "".join(
        f"| drain per second | {cells} |\n" for cells in ("**Mainspring** | 100", "A | 1,200 (of 3)", "Huey | 900")
    )
    (found,) = workloads(rows)
    assert found.figures[1] == Figure("A", "1,200 (of 3)", 1200.0)
    assert found.ahead == ["A"], "more is better, and what is not durable is not compared"
    assert Workload("latency, ms", found.figures).ahead == []


def test_a_workload_of_one_system_is_left_out() -> None:
    assert workloads("| endpoint per second | **Mainspring** | 647 |\n") == []
