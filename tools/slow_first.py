"""The pytest plug-in that begins with the slowest test files, and says at the end how long each file took.

`--dist loadfile` gives a file to one process. xdist begins with the files that have most tests; a slow file with one
test would then run last, while the other processes have nothing left to do.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tools.tree import ROOT

SLOW_FILES = ROOT / "tests" / "slow_files.txt"
SHOWN = 15
LEAST_S = 60.0
"""Of a whole run; shorter ones print no list."""
_seconds: Counter[str] = Counter()


def slow_files() -> list[str]:
    """Return the files to begin with, slowest first."""
    lines = SLOW_FILES.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {name: n for n, name in enumerate(slow_files())}
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], len(rank)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if sum(_seconds.values()) < LEAST_S:
        return
    terminalreporter.section("slowest files")
    for name, seconds in _seconds.most_common(SHOWN):
        terminalreporter.line(f"{seconds:7.1f} s  {name}")
