"""Prepares pages for the site: the option `skip="reason"` of a code block is for the tests, and MkDocs refuses it."""

from __future__ import annotations

import re
from typing import Any

_SKIP = re.compile(r'^(```\w+[^\n]*?) skip="[^"\n]*"', re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    return _SKIP.sub(r"\1", markdown)
