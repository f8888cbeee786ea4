"""Figures of benchmarks/RESULTS.md, by section and row."""

from __future__ import annotations

import re

import pytest

from tools.tree import ROOT

RESULTS = ROOT / "benchmarks" / "RESULTS.md"
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


class Section:
    """What one benchmark recorded last."""

    def __init__(self, name: str) -> None:
        found = re.search(rf"^## {re.escape(name)}\n(.*?)(?=^## |\Z)", RESULTS.read_text(), re.MULTILINE | re.DOTALL)
        if found is None:
            pytest.skip(f"not measured yet: make bench ARGS={name}")
        self.text = found[1]
        for fact in ("command", "machine", "commit"):
            assert re.search(rf"^- {fact}: \S", self.text, re.MULTILINE), f"{name} has no {fact}"
        self.commit = self.text.partition("- commit: ")[2].split()[0]

    def part(self, title: str) -> str:
        """Keep only the part below the heading that begins with this title; return its heading."""
        found = re.search(rf"^### {re.escape(title)}.*?(?=^### |\Z)", self.text, re.MULTILINE | re.DOTALL)
        assert found is not None, f"no part {title}"
        head, self.text = found[0].splitlines()[0], found[0]
        return head

    def rows(self, label: str, *more: str) -> list[list[str]]:
        """Return the cells of each row whose first cells begin with these texts, without them."""
        wanted = (label, *more)
        split = (
            [cell.strip() for cell in line.strip("| ").split(" | ")] for line in self.text.splitlines() if "|" in line
        )
        found = [cells for cells in split if all(map(str.startswith, cells, wanted)) and len(cells) > len(wanted)]
        assert found, f"no row {wanted}"
        return [cells[len(wanted) :] for cells in found]

    def number(self, label: str, *more: str, cell: int = 0, place: int = 0) -> float:
        """Return a number of the first such row: of a cell after those texts, counted from 0, and of a place in it."""
        return float(_NUMBER.findall(self.rows(label, *more)[0][cell])[place].replace(",", ""))
