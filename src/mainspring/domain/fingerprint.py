"""Fingerprints of errors: equal for the same error with other numbers, ids, URLs or paths."""

from __future__ import annotations

import hashlib
import re

MAX_CHARS = 500

_UUID = re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b")
_PLACEHOLDERS = (
    (re.compile(r"(?<![\w<>])(?:[A-Za-z]:\\|~?/|\.{1,2}/)[^\s\"'<>:,;()]*"), "<path>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "<n>"),
    # Hex digits without dashes are an id only with both kinds of digits: otherwise it is a number, or a word.
    (re.compile(r"\b(?=[0-9]*+[a-fA-F])(?=[a-fA-F]*+[0-9])[0-9a-fA-F]{8,}+\b"), "<id>"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "<n>"),
    (re.compile(r"\s+"), " "),
)


# A run of letters of a scheme is scanned once, and its beginning is found inside it.
_URL = re.compile(r"(?<![a-z0-9+.-])[a-z0-9+.-]++://[^\s\"'<>,;]++")
_SCHEME = re.compile(r"\b[a-z]")


def _without_urls(line: str) -> str:
    done, at = [], 0
    while found := _URL.search(line, at):
        colon = line.index("://", found.start())
        begin = _SCHEME.search(line, found.start(), colon)
        done.append(line[at : colon + 3] if begin is None else f"{line[at : begin.start()]}<url>")
        at = colon + 3 if begin is None else found.end()
    return "".join([*done, line[at:]])


def essence(error: str) -> str:
    """Return the first line of an error, with placeholders for numbers, ids, URLs and paths."""
    line = next((line for line in error.strip()[: MAX_CHARS * 4].splitlines() if line.strip()), "")
    line = _UUID.sub("<id>", line)
    line = _without_urls(line) if "://" in line else line
    for pattern, placeholder in _PLACEHOLDERS:
        line = pattern.sub(placeholder, line)
    return line.strip()[:MAX_CHARS]


def fingerprint(error: str | None, *, state: str, exit_code: int | None = None) -> str:
    """Return sixteen hex digits that executions with the same final state, exit code and error share."""
    same = f"{state}\n{'' if exit_code is None else exit_code}\n{essence(error or '')}"
    return hashlib.sha256(same.encode("utf-8", "surrogatepass")).hexdigest()[:16]
