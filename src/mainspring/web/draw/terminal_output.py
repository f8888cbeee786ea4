"""Log output as safe HTML: escaped text with the basic terminal colours; other control sequences are removed.

A line that a program overwrites, such as a progress bar, is shown in its last form with the number of overwrites.
"""

from __future__ import annotations

import itertools
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
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_COLOURING = re.compile(r"\x1b\[[\d;]*m")
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_STREAMS = {"stdout": "out", "stderr": "err", "system": "sys"}

Classes = tuple[str, ...]


def render(chunks: Iterable[wire.LogChunk], after_attempt: int = 0) -> Markup:
    """Render chunks as spans by stream, with a separator where another attempt begins."""
    return Markup("").join(_pieces(chunks, after_attempt))


def _pieces(chunks: Iterable[wire.LogChunk], attempt: int) -> Iterator[Markup]:
    for (_, stream), joined in itertools.groupby(chunks, key=lambda chunk: (chunk.attempt, chunk.stream)):
        first, *rest = joined
        if first.attempt != attempt:
            attempt = first.attempt
            if attempt > 1:
                yield Markup('<span class="attempt">attempt {}</span>').format(attempt)
        yield from _spans(first, "".join([first.text, *(chunk.text for chunk in rest)]), _STREAMS[stream])


def _spans(first: wire.LogChunk, text: str, stream: str) -> Iterator[Markup]:
    """Yield the complete lines, then the unfinished last line on its own: later output may overwrite it.

    `data-over`: the text starts by returning to the start of the previous line. `data-cr`: the next text does.
    """
    place = f"{first.attempt}.{first.seq}"
    over = Markup(" data-over") if text.startswith("\r") and not text.startswith("\r\n") else ""
    back = Markup(" data-cr") if text.endswith("\r") else ""
    text = text.replace("\r\n", "\n")
    cut = text.rfind("\n") + 1
    classes: Classes = ()
    if cut:
        whole, classes = _lines(text[:cut], classes)
        yield Markup('<span class="{}" data-at="{}"{}>{}</span>').format(stream, place, over, whole)
    if cut < len(text):
        tail, _ = _lines(text[cut:], classes)
        begins = "" if cut else over
        yield Markup('<span class="{} tail" data-at="{}"{}{}>{}</span>').format(stream, place, begins, back, tail)


def coloured(text: str) -> Markup:
    """Escape text; turn SGR colours and bold into classes and remove every other control character."""
    return _lines(text.replace("\r\n", "\n"), ())[0]


def _lines(text: str, classes: Classes) -> tuple[Markup, Classes]:
    pieces: list[str] = []
    if "\r" not in text:
        classes = _paint(text, classes, pieces)
        return Markup("".join(pieces)), classes
    for line in _LINE.findall(text):
        *over, last = line.rstrip("\r\n").split("\r")
        # Colours that the overwritten text switched on or off stay in effect.
        classes = _paint("".join(_COLOURING.findall("".join(over))) + last, classes, pieces)
        if times := sum(1 for drawn in over if drawn):
            pieces.append(f'<small title="overwritten {times} times">↻{times}</small>')
        if line.endswith("\n"):
            pieces.append("\n")
    return Markup("".join(pieces)), classes


def _paint(text: str, classes: Classes, pieces: list[str]) -> Classes:
    """Append escaped text with its classes; return the classes at its end. Pieces are joined once, at the end."""
    start = 0
    for found in _SEQUENCE.finditer(text):
        if found.start() > start:
            pieces.append(_piece(text[start : found.start()], classes))
        start = found.end()
        if found["sgr"] is not None:
            classes = _after(classes, found["sgr"])
    if start < len(text):
        pieces.append(_piece(text[start:], classes))
    return classes


def _piece(text: str, classes: Classes) -> str:
    shown = str(escape(text))
    return f'<i class="{" ".join(classes)}">{shown}</i>' if classes else shown


def _after(classes: Classes, codes: str) -> Classes:
    given = iter([int(c) if len(c) < 4 and c else 0 for c in codes.split(";")])
    for code in given:
        if code == 0:
            classes = ()
        elif code == 1:
            classes = (*(c for c in classes if c != "bold"), "bold")
        elif code in (22, 39):
            classes = tuple(c for c in classes if (c == "bold") != (code == 22))
        elif 30 <= code <= 37 or 90 <= code <= 97:
            classes = (*(c for c in classes if c == "bold"), "c-" + _COLOURS[code % 10])
        elif code in (38, 48):  # 256 colours or RGB: not supported; skip its arguments
            for _ in range({5: 1, 2: 3}.get(next(given, 0), 0)):
                next(given, 0)
    return classes
