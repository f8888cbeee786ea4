"""The pytest plug-in behind `@pytest.mark.requirement(N)`: records which rows passing tests prove.

`@pytest.mark.requirement(N, measured="throughput")` is for a test that compares a recorded figure with the goal of the
row: benchmarks/RESULTS.md has it under that heading. The test calls `record_property("figure", ...)` with its finding.

Rows travel on the test reports, so that the controlling process sees them when tests are spread over others.
"""

from __future__ import annotations

import pytest

from tools.requirement_rows import Proof, load_record, rows, save_record

_PROPERTY = "requirement"
_MEASURED = "requirement measured"
_FIGURE = "figure"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    known = rows()
    for item in items:
        numbers = [number for mark in item.iter_markers("requirement") for number in mark.args]
        unknown = [number for number in numbers if number not in known]
        if unknown:
            raise pytest.UsageError(f"{item.nodeid}: no such row in tests/requirements.toml: {unknown}")
        item.user_properties += [(_PROPERTY, number) for number in numbers]
        sections = [mark.kwargs["measured"] for mark in item.iter_markers("requirement") if "measured" in mark.kwargs]
        item.user_properties += [(_MEASURED, section) for section in sections]


def pytest_configure(config: pytest.Config) -> None:
    spread_worker = hasattr(config, "workerinput")
    if not spread_worker:
        config.pluginmanager.register(Recorder(config))


class Recorder:
    """Collects the reports of one test run and writes them down at its end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._proofs: dict[str, Proof] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        numbers = [int(str(number)) for name, number in report.user_properties if name == _PROPERTY]
        found = {name: str(value) for name, value in report.user_properties}
        # A failing set-up or tear-down counts against the test as much as its body does. A skip says nothing, except
        # that a figure is missing.
        unmeasured = report.skipped and _MEASURED in found
        if numbers and (report.failed or unmeasured or (report.when == "call" and report.passed)):
            earlier = self._proofs.get(report.nodeid)
            passed = report.passed and (earlier is None or earlier.passed)
            self._proofs[report.nodeid] = Proof(numbers, passed, found.get(_MEASURED, ""), found.get(_FIGURE, ""))

    def pytest_sessionfinish(self) -> None:
        option = self._config.option
        narrowed = (
            self._config.args_source is not pytest.Config.ArgsSource.TESTPATHS
            or option.keyword
            or option.markexpr
            or option.collectonly
        )
        # Some of the tests say nothing about the rest: they update the record instead of replacing it.
        save_record({**load_record(), **self._proofs} if narrowed else self._proofs)
