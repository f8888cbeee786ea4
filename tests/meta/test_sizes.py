"""Sizes are reported, not judged: see them with `pytest -s tests/meta/test_sizes.py`."""

from __future__ import annotations

from tools.sizes import functions, report


def test_the_report_names_files_and_functions() -> None:
    text = report()
    print(text)
    assert "src/mainspring/" in text
    assert " functions, 95 % of them within " in text


def test_a_function_is_as_long_as_its_lines() -> None:
    assert list(functions("def one(): pass\n\nasync def three():\n    a = 1\n    return a\n")) == [
        ("one", 1),
        ("three", 3),
    ]
