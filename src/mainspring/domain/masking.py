"""Masking: replaces secret values in output, also encoded ones and across the borders of chunks. Pure.

A value is found as it is, in base64 (at each of the three alignments, both alphabets), percent-encoded, in hexadecimal,
and escaped as in JSON, HTML and Python. Lines of a value with several lines are found one by one. Not found: values
shorter than `MIN_CHARS`, encodings of these below `MIN_ENCODED`, and anything else computed from a value, such as a
compressed, reversed or split one, or base64 that a line break cuts.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "•••"
MIN_CHARS = 4
MIN_ENCODED = 6
MIN_LINE = 6
"""Of a line of a value with several lines."""
WINDOW = 512
"""Longer values are found by pieces of this size, which bounds what is held back of a stream."""
_MASK = MASK.encode()


def spellings(value: str) -> set[bytes]:
    """Return every spelling of a value that is masked."""
    plain = value.encode()
    found: set[bytes] = set()
    for piece in _pieces(plain):
        found.add(piece)
        found.update(each for each in _encoded(piece) if len(each) >= MIN_ENCODED)
    return {each for each in found if len(each) >= MIN_CHARS}


def _pieces(plain: bytes) -> Iterator[bytes]:
    if len(plain) < MIN_CHARS:
        return
    lines = [line.strip() for line in plain.splitlines()]
    for text in [plain, *(line for line in lines if len(lines) > 1 and len(line) >= MIN_LINE)]:
        if len(text) <= WINDOW:
            yield text
        else:
            yield from (text[at : at + WINDOW] for at in range(0, len(text) - WINDOW + 1, WINDOW))
            yield text[-WINDOW:]


def _encoded(plain: bytes) -> Iterator[bytes]:
    yield from _base64(plain)
    yield plain.hex().encode()
    yield plain.hex().upper().encode()
    text = plain.decode("utf-8", "replace")
    for escaped in (quote(plain, safe=""), quote(plain), quote_plus(plain), quote(plain, safe="!'()*")):
        yield escaped.encode()
        yield _lower_escapes(escaped).encode()
    for shown in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]):
        yield shown.encode()
        yield shown.replace("/", "\\/").encode()
    yield html.escape(text).encode()
    yield html.escape(text, quote=False).encode()


def _base64(plain: bytes) -> Iterator[bytes]:
    """Yield the characters that the value alone determines, wherever it stands in what was encoded."""
    for before in range(3):
        bits_before, bits = 8 * before, 8 * (before + len(plain))
        first, last = -(-bits_before // 6), bits // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(b"\0" * before + plain)[first:last]
    yield base64.b64encode(plain)
    yield base64.b64encode(plain + b"\n")
    yield base64.urlsafe_b64encode(plain)


def _lower_escapes(text: str) -> str:
    """Return a percent-encoded text with lower-case escapes."""
    head, *rest = text.split("%")
    return head + "".join("%" + each[:2].lower() + each[2:] for each in rest)


class Mask:
    """The spellings of some values, and their replacement in whole texts."""

    def __init__(self, values: Iterable[str]) -> None:
        found = set().union(*map(spellings, values))
        # A spelling that contains another one covers it, so the longest come first.
        self.spellings = sorted(found, key=len, reverse=True)
        self.longest = len(self.spellings[0]) if self.spellings else 0

    def __bool__(self) -> bool:
        return bool(self.spellings)

    def data(self, data: bytes) -> bytes:
        return _replaced(data, _merged(self._hits(data)))

    def text(self, text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")
        masked = self.data(data)
        return text if masked == data else masked.decode("utf-8", "replace")

    def json(self, value: Any) -> Any:
        """Mask inside a JSON value: strings, names, and numbers whose digits are a secret."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(name) if isinstance(name, str) else name: self.json(v) for name, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.json(each) for each in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return MASK if self.text(str(value)) != str(value) else value
        return value

    def _hits(self, data: bytes) -> list[tuple[int, int]]:
        found = []
        for spelling in self.spellings:
            at = data.find(spelling)
            while at >= 0:
                found.append((at, at + len(spelling)))
                at = data.find(spelling, at + 1)
        return found

    def open_end(self, data: bytes) -> int:
        """Return where the longest end of the data begins that may become a spelling."""
        start = len(data)
        for spelling in self.spellings:
            at = data.find(spelling[:1], max(0, len(data) - len(spelling) + 1))
            while 0 <= at < start:
                if spelling.startswith(data[at:]):
                    start = at
                    break
                at = data.find(spelling[:1], at + 1)
        return start

    def hits(self, data: bytes) -> list[tuple[int, int]]:
        """Return the parts of the data that are spellings: disjoint, in order."""
        return _merged(self._hits(data))


class MaskedStream:
    """Masks a stream of chunks. Holds back only an end that may be the beginning of a value."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        data = self._held + data
        end = self._mask.open_end(data)
        hits = self._mask.hits(data)
        for start, stop in hits:  # a value that may continue as a longer one waits for what follows
            if start < end < stop:
                end = start
        self._held = data[end:]
        return _replaced(data[:end], [hit for hit in hits if hit[1] <= end])

    def finish(self) -> bytes:
        """Return what is held back; the stream may begin again afterwards."""
        held, self._held = self._held, b""
        return self._mask.data(held)


def _merged(hits: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(hits):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


def _replaced(data: bytes, hits: list[tuple[int, int]]) -> bytes:
    if not hits:
        return data
    parts, at = [], 0
    for start, stop in hits:
        parts += [data[at:start], _MASK]
        at = stop
    return b"".join([*parts, data[at:]])
