"""What errors have in common: the same mistake has the same fingerprint, whatever numbers, ids and paths it names."""

from __future__ import annotations

import hashlib
import re

MOST_CHARS = 500

_PARTS = (
    (re.compile(r"\b[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}\b"), "<id>"),
    (re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s\"'<>,;]+"), "<url>"),
    (re.compile(r"(?<![\w<>])(?:[A-Za-z]:\\|~?/|\.{1,2}/)[^\s\"'<>:,;()]*"), "<path>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "<n>"),
    (re.compile(r"\b(?=[0-9a-fA-F]*[0-9])(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{8,}\b"), "<id>"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "<n>"),
    (re.compile(r"\s+"), " "),
)


def essence(error: str) -> str:
    """The first line of an error without what differs from one occurrence to the next."""
    line = next((line for line in error.strip()[: MOST_CHARS * 4].splitlines() if line.strip()), "")
    for pattern, stands_for in _PARTS:
        line = pattern.sub(stands_for, line)
    return line.strip()[:MOST_CHARS]


def fingerprint(error: str | None, *, state: str, exit_code: int | None = None) -> str:
    """Sixteen hex digits; executions that ended in the same way by the same mistake share them."""
    same = f"{state}\n{'' if exit_code is None else exit_code}\n{essence(error or '')}"
    return hashlib.sha256(same.encode("utf-8", "surrogatepass")).hexdigest()[:16]
