"""Names of tokens without the ids that are shown beside them."""

from __future__ import annotations

import re

_ID = re.compile(r" \[[0-9a-f]{8}\]")


def without_ids(text: str | None) -> str:
    """Return a text without the start of the id after each name; there has to be one."""
    shown, found = _ID.subn("", text or "")
    assert found, f"no id of a token in {text!r}"
    return shown
