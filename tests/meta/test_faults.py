"""Every fault of the list is caused by a test, or the list says why not."""

from __future__ import annotations

import re

from tools.fault_plugin import faults
from tools.tree import ROOT

_MARK = re.compile(r"mark\.fault\(([^)]*)\)")


def caused() -> set[str]:
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    return {name for text in texts for names in _MARK.findall(text) for name in re.findall(r"\bF\d+\b", names)}


def test_every_fault_is_caused_by_a_test_or_says_why_not() -> None:
    known = faults()
    assert list(known) == [f"F{n}" for n in range(1, len(known) + 1)]
    without = {name for name, fault in known.items() if "why" in fault}
    assert caused() == known.keys() - without
