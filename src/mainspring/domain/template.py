"""`{{name}}` in a task's strings, filled in when an attempt starts: plain substitution, one pass, no logic."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

NAMES = ("fire_at", "execution_date", "execution_id", "attempt", "job")
"""Known everywhere; `params.<name>` besides."""

_PLACE = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
_PARAM = re.compile(r"params\.[A-Za-z_][A-Za-z0-9_]*\Z")


def unknown_names(text: str) -> list[tuple[str, str]]:
    """Names in a string that nothing will fill in, each with a hint."""
    found = []
    for name in _PLACE.findall(text):
        if name not in NAMES and not _PARAM.match(name):
            close = difflib.get_close_matches(name, NAMES, n=1)
            hint = f"did you mean {{{{{close[0]}}}}}?" if close else f"known: {', '.join(NAMES)}, params.<name>"
            found.append((name, hint))
    return found


def render(text: str, values: Mapping[str, str]) -> str:
    """Fills in the values; a parameter that was not given is an error of the attempt."""
    if "{{" not in text:
        return text
    return _PLACE.sub(lambda match: values[match[1]], text)
