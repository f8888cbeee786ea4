"""The list of requirements is whole, and the record of proofs tells the truth."""

from __future__ import annotations

import pytest

from tools.requirement_rows import Proof, figures, load_record, measured, proven, rows
from tools.tree import ROOT

pytest_plugins = ("pytester",)

SAMPLE = """
    import pytest

    @pytest.mark.requirement(1)
    def test_passes(): pass

    @pytest.mark.requirement(2, 3)
    def test_fails(): assert False

    @pytest.mark.requirement(4)
    def test_skips(): pytest.skip("not here")

    @pytest.fixture
    def broken():
        yield
        raise RuntimeError

    @pytest.mark.requirement(5)
    def test_breaks_afterwards(broken): pass

    @pytest.mark.requirement(6, measured="throughput")
    def test_compares(record_property): record_property("figure", "2 of at least 1")

    @pytest.mark.requirement(7, measured="throughput")
    def test_has_no_figure(): pytest.skip("not measured yet")
"""


def test_there_are_152_rows_each_with_a_title() -> None:
    assert sorted(rows()) == list(range(1, 153))
    assert [row.number for row in rows().values() if len(row.title) < 15] == []
    assert len({row.title for row in rows().values()}) == 152


def test_a_row_is_proven_by_a_pass_and_no_failure() -> None:
    record = {"a": Proof([1, 2], True), "b": Proof([2], False), "c": Proof([3], False)}
    assert proven(record) == {1}


def test_a_row_with_another_proof_does_not_count_as_measured() -> None:
    record = {"a": Proof([1, 2], True, "throughput", "2"), "b": Proof([2], True), "c": Proof([3], False, "status", "3")}
    assert measured(record) == {1} and figures(record) == {1: [record["a"]], 2: [record["a"]]}


@pytest.mark.parametrize("spread", [["-p", "no:xdist"], ["-n", "2"]], ids=["one process", "two processes"])
def test_outcomes_reach_the_record(
    spread: list[str], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = pytester.path / "record.json"
    pytester.makeini("[pytest]\nmarkers = requirement\ntestpaths = .")
    pytester.makeconftest(
        f"""
        import pathlib
        from tools import requirement_rows
        requirement_rows.RECORD = pathlib.Path({str(record)!r})
        pytest_plugins = ("tools.requirement_plugin",)
        """
    )
    pytester.makepyfile(SAMPLE)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.runpytest_subprocess(*spread)
    monkeypatch.setattr("tools.requirement_rows.RECORD", record)
    assert recorded() == {1: True, 2: False, 3: False, 5: False, 6: True, 7: False}

    (compared,) = figures(load_record())[6]
    assert (compared.measured, compared.figure) == ("throughput", "2 of at least 1")

    pytester.runpytest_inprocess("-k", "test_passes")
    assert recorded() == {1: True, 2: False, 3: False, 5: False, 6: True, 7: False}, (
        "some of the tests update the record"
    )


def test_an_unknown_row_is_refused(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makeconftest('pytest_plugins = ("tools.requirement_plugin",)')
    pytester.makepyfile("import pytest\n\n@pytest.mark.requirement(999)\ndef test_it(): pass")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    outcome = pytester.runpytest_subprocess("--collect-only")
    assert outcome.ret == pytest.ExitCode.USAGE_ERROR
    outcome.stderr.fnmatch_lines(["*no such row*999*"])


def recorded() -> dict[int, bool]:
    return {row: proof.passed for proof in load_record().values() for row in proof.rows}
