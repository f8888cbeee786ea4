"""The rows of tests/requirements.toml and the record of which tests proved them."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass

from tools.tree import ROOT

ROWS = ROOT / "tests" / "requirements.toml"
RECORD = ROOT / ".cache" / "requirements.json"


@dataclass(frozen=True)
class Row:
    number: int
    section: str
    title: str


def rows() -> dict[int, Row]:
    sections = tomllib.loads(ROWS.read_text(encoding="utf-8"))
    return {
        int(number): Row(int(number), section, title)
        for section, titles in sections.items()
        for number, title in titles.items()
    }


@dataclass(frozen=True)
class Proof:
    """What one marked test said when it last ended: the rows it stands for and whether it passed.

    If it only compared a recorded figure, also the section of benchmarks/RESULTS.md and the figure with its goal.
    """

    rows: list[int]
    passed: bool
    measured: str = ""
    figure: str = ""


def load_record() -> dict[str, Proof]:
    """The recorded proofs by test id; empty when no test run has been recorded."""
    if not RECORD.is_file():
        return {}
    return {test: Proof(**proof) for test, proof in json.loads(RECORD.read_text(encoding="utf-8")).items()}


def save_record(record: dict[str, Proof]) -> None:
    RECORD.parent.mkdir(exist_ok=True)
    plain = {test: vars(proof) for test, proof in sorted(record.items())}
    RECORD.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")


def figures(record: dict[str, Proof]) -> dict[int, list[Proof]]:
    """Passing proofs by recorded figures, by row."""
    found: dict[int, list[Proof]] = {}
    for proof in record.values():
        for row in proof.rows if proof.passed and proof.measured else ():
            found.setdefault(row, []).append(proof)
    return found


def measured(record: dict[str, Proof]) -> set[int]:
    """Proven rows whose only proofs are recorded figures."""
    return proven(record) - {row for proof in record.values() if not proof.measured for row in proof.rows}


def proven(record: dict[str, Proof]) -> set[int]:
    """Rows with at least one passing test and no failing one."""
    passed = {row for proof in record.values() if proof.passed for row in proof.rows}
    failed = {row for proof in record.values() if not proof.passed for row in proof.rows}
    return passed - failed
