"""The slow files that a run begins with exist, and come first."""

from __future__ import annotations

import pytest

from tools.slow_first import pytest_collection_modifyitems, slow_files
from tools.tree import ROOT


def test_slow_files_exist_once() -> None:
    names = slow_files()
    assert len(names) == len(set(names)) > 10
    assert [name for name in names if not (ROOT / name).is_file()] == []


def test_they_come_first_and_the_order_within_a_file_stays(request: pytest.FixtureRequest) -> None:
    class Named:
        def __init__(self, nodeid: str) -> None:
            self.nodeid = nodeid

    first, second = slow_files()[:2]
    items = [Named(f"{file}::{test}") for file in ("tests/test_batch.py", second, first) for test in "ba"]
    pytest_collection_modifyitems(items)  # type: ignore[arg-type]
    files = (first, second, "tests/test_batch.py")
    assert [item.nodeid for item in items] == [f"{file}::{test}" for file in files for test in "ba"]
    assert not getattr(request.config.option, "loadscopereorder", False), "xdist keeps this order"
