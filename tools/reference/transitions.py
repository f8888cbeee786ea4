"""The table of state transitions, between its markers in whichever page has them, from `domain/execution.py`."""

from __future__ import annotations

import re
from pathlib import Path

from mainspring.domain.execution import TRANSITIONS
from tools.reference.markdown import code, table
from tools.tree import ROOT

BEGIN, END = "<!-- transitions: begin -->", "<!-- transitions: end -->"
_BLOCK = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)


def transitions_page() -> Path:
    """The one page of the documentation with the markers."""
    (path,) = (path for path in sorted((ROOT / "docs").rglob("*.md")) if BEGIN in path.read_text(encoding="utf-8"))
    return path


def page() -> str:
    """That page with the current table."""
    rows = [(code(t.before) if t.before else "(new)", code(t.after), t.operations) for t in TRANSITIONS]
    block = "\n".join([BEGIN, "", table(("from", "to", "by"), rows), "", END])
    return _BLOCK.sub(lambda _: block, transitions_page().read_text(encoding="utf-8"))
