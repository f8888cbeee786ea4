"""The page about scale: its tables are the simulation's output, and its figures are those of benchmarks/RESULTS.md."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.docs.test_sizing import ROW, number, product
from tools.cells import moves, placement
from tools.cells.__main__ import TABLES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "scale.md").read_text()
MEASURED = re.compile(r"^\| [^|]+ \| ([\d.,]+) \| `(\w+)` \| (\w{7}) \|$", re.MULTILINE)


@pytest.mark.parametrize("title", TABLES)
def test_the_page_quotes_the_simulation(title: str) -> None:
    for block in "\n".join(TABLES[title]()).split("\n\n"):
        assert block in PAGE, f"run `python -m tools.cells` and copy the table {title!r} into the page"


def test_each_measured_figure_is_in_its_section_of_the_results() -> None:
    parts = re.split(r"^## (\w+)$", (ROOT / "benchmarks" / "RESULTS.md").read_text(), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    rows = MEASURED.findall(PAGE)
    assert len(rows) == 14
    for figure, section, commit in rows:
        assert re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d,]|\.\d)", sections[section]), (figure, section)
        assert f"- commit: {commit}" in sections[section], (figure, commit)


def test_the_arithmetic_of_a_billion_adds_up() -> None:
    rows = ROW.findall(PAGE.partition("## Placement")[0])
    assert len(rows) == 13
    for name, how, result in rows:
        assert number(result) == pytest.approx(product(how), rel=0.005), name


def test_the_simulation_uses_the_figures_of_the_page() -> None:
    assert f"{placement.CELL_PER_S:,.0f} executions" in PAGE and f"({placement.JOBS_PER_S:,.0f} per second)" in PAGE
    assert f"| {placement.EXECUTIONS_PER_S:,} | `interactive` |" in PAGE


def test_every_instant_is_decided_once_whichever_mover_dies_or_stalls() -> None:
    outcome = moves.trials(moves.ALL, count=100, seed=7)
    assert (outcome.lost, outcome.twice) == (0, 0) and outcome.moved > 50


@pytest.mark.parametrize("name", ["fenced_steps", "compared", "durable", "watermark"])
def test_each_guard_of_a_move_is_needed(name: str) -> None:
    broken = moves.trials(replace(moves.ALL, **{name: False}), count=200)
    assert broken.lost + broken.twice > 0


def test_ids_from_job_and_instant_reject_a_repeated_copy() -> None:
    kept = moves.trials(replace(moves.ALL, fenced_copies=False), count=100)
    random = moves.trials(replace(moves.ALL, fenced_copies=False, same_ids=False), count=100)
    assert kept.rejected > 0 and kept.twice == 0 and random.twice > 0


def test_no_cell_is_above_its_fill_and_every_tenant_is_in_one() -> None:
    tenants = placement.population()
    cells = placement.placed(tenants)
    assert sum(len(cell.tenants) for cell in cells) == len(tenants)
    assert all(cell.full <= placement.FILL or len(cell.tenants) == 1 for cell in cells)
