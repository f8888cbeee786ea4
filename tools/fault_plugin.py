"""The pytest plug-in behind `@pytest.mark.fault("F4")` and `--fault F4`: runs the tests that cause one fault."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from tools.tree import ROOT

FAULTS = ROOT / "tests" / "faults.toml"


def faults() -> dict[str, dict[str, Any]]:
    """Return title, and the reason for a missing test, by name."""
    return tomllib.loads(FAULTS.read_text(encoding="utf-8"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fault", metavar="NAME", help="run only the tests that cause this fault, e.g. F4")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known, wanted = faults(), config.getoption("--fault")
    if wanted is not None and wanted not in known:
        raise pytest.UsageError(f"--fault: there is no {wanted}; tests/faults.toml has F1 to F{len(known)}")
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        names = [name for mark in item.iter_markers("fault") for name in mark.args]
        if unknown := [name for name in names if name not in known]:
            raise pytest.UsageError(f"{item.nodeid}: no such fault in tests/faults.toml: {unknown}")
        (kept if wanted is None or wanted in names else left_out).append(item)
    if wanted is not None:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
