"""Text of users, jobs and servers for a terminal: shown, never obeyed.

A terminal obeys control characters in what it shows: it moves the cursor over earlier lines, sets titles, writes to the
clipboard, or hides and reorders text. All but line breaks, tabs and colours are replaced by their escapes (`\\x1b`).
"""

from __future__ import annotations

import re

_COLOUR = "\x1b\\[[0-9;:]{0,32}m"
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f"
"""C0 without tab and line feed, DEL, and C1, which some terminals read as escape sequences of one character."""
_INVISIBLE = (
    "\u061c\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069"  # directions: text is shown in another order than it is read
    "\u2028\u2029\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff"
)
_UNSAFE = re.compile(f"({_COLOUR})|\r(?=\n)|[{_CONTROLS}{_INVISIBLE}]")
_IN_JSON = re.compile(f"[\x7f-\x9f{_INVISIBLE}]")
_UNFINISHED = re.compile("\x1b(?:\\[[0-9;:]{0,32})?\\Z|\r\\Z")
RESET = "\x1b[0m"


def printable(text: str) -> str:
    """Return the text with everything but line breaks, tabs and colours escaped. Takes linear time."""
    return _UNSAFE.sub(_shown, text)


def printable_json(content: bytes) -> str:
    """Return JSON that means the same and has no character that a terminal obeys."""
    return _IN_JSON.sub(lambda found: _json_escape(found[0]), content.decode())


class PrintableStream:
    """Makes a text that arrives in chunks printable: a colour may be cut in two."""

    def __init__(self) -> None:
        self._held = ""
        self._coloured = False

    def add(self, chunk: str) -> str:
        """Return what can be shown so far; the start of an unfinished sequence is held back."""
        text, self._held = self._held + chunk, ""
        if (cut := _UNFINISHED.search(text, max(0, len(text) - 40))) is not None:
            text, self._held = text[: cut.start()], text[cut.start() :]
        shown = printable(text)
        if (last := shown.rfind("\x1b[")) >= 0:
            self._coloured = shown[last : shown.find("m", last) + 1] not in (RESET, "\x1b[m")
        return shown

    def end(self) -> str:
        """Return what was held back, and switch colours off if the text left them on."""
        held, self._held = printable(self._held), ""
        reset, self._coloured = RESET if self._coloured else "", False
        return held + reset


def _shown(found: re.Match[str]) -> str:
    text = found[0]
    if found[1] is not None:
        return text
    return "" if text == "\r" and found.string[found.end() : found.end() + 1] == "\n" else _escape(text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _json_escape(character: str) -> str:
    code = ord(character)
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
