"""Output of programs made harmless: text with the few terminal colours that mean something, nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from markupsafe import Markup, escape

from mainspring import wire

_SEQUENCE = re.compile(
    r"\x1b\[(?P<sgr>[\d;]*)m"  # colours and weights
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # any other control sequence
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links
    r"|\x1b[@-_]?|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_STREAMS = {"stdout": "out", "stderr": "err", "system": "sys"}


def render(chunks: Iterable[wire.LogChunk], after_attempt: int = 0) -> Markup:
    """Chunks as spans by stream; a line tells where another attempt begins."""
    return Markup("").join(_pieces(chunks, after_attempt))


def _pieces(chunks: Iterable[wire.LogChunk], attempt: int) -> Iterator[Markup]:
    for chunk in chunks:
        if chunk.attempt != attempt:
            attempt = chunk.attempt
            if attempt > 1:
                yield Markup('<span class="turn">attempt {}</span>').format(attempt)
        yield Markup('<span class="{}">{}</span>').format(_STREAMS[chunk.stream], coloured(chunk.text))


def coloured(text: str) -> Markup:
    """Escaped text; SGR colours and bold become classes, every other control character goes."""
    done = Markup("")
    classes: tuple[str, ...] = ()
    start = 0
    text = text.replace("\r\n", "\n").replace("\r", "\n")  # a line drawn over another becomes a line of its own
    for found in _SEQUENCE.finditer(text):
        done += _piece(text[start : found.start()], classes)
        start = found.end()
        if found["sgr"] is not None:
            classes = _after(classes, found["sgr"])
    return done + _piece(text[start:], classes)


def _piece(text: str, classes: tuple[str, ...]) -> Markup:
    if not text or not classes:
        return escape(text)
    return Markup('<i class="{}">{}</i>').format(" ".join(classes), text)


def _after(classes: tuple[str, ...], codes: str) -> tuple[str, ...]:
    for code in (int(c) if len(c) < 4 and c else 0 for c in codes.split(";")):
        if code == 0:
            classes = ()
        elif code == 1:
            classes = (*(c for c in classes if c != "bold"), "bold")
        elif code in (22, 39):
            classes = tuple(c for c in classes if (c == "bold") != (code == 22))
        elif 30 <= code <= 37 or 90 <= code <= 97:
            classes = (*(c for c in classes if c == "bold"), "c-" + _COLOURS[code % 10])
    return classes
