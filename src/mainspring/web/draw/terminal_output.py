"""Log output as safe HTML: escaped text with the basic terminal colours; other control sequences are removed.

A line that a program overwrites, such as a progress bar, is shown in its last form with the number of overwrites.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

from markupsafe import Markup, escape

from mainspring import wire
from mainspring.web.draw import filters
from mainspring.web.draw.log_parts import Folded, GroupEnd, Lines, Part, folded, grouped, lines_of

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


def render(
    chunks: Iterable[wire.LogChunk],
    after_attempt: int = 0,
    *,
    zone: str = "UTC",
    now: datetime | None = None,
    fold: bool = False,
    has_start: bool = True,
) -> Markup:
    """Render chunks as spans by stream, groups as disclosures, and a separator where another attempt begins.

    `fold` collapses the middle of a long log. With `now`, spans carry the time in `zone` at which they were received.
    """
    painter = _Painter(after_attempt, zone, now)
    parts = grouped(lines_of(chunks))
    found = folded(parts, has_start=has_start) if fold else Folded([], [], parts)
    first, hidden, last = (Markup("").join(painter.parts(some)) for some in (found.first, found.hidden, found.last))
    if hidden:
        more, lines = (filters.plural(found.count, word) for word in ("more line", "line"))
        hidden = _FOLD.format(more, lines, hidden)
    return first + hidden + last


_FOLD = Markup(
    '<details class="log-fold"><summary><b class="closed">Show {}</b><b class="opened">Hide {}</b></summary>'
    "{}</details>"
)
_GROUP = Markup('<details class="log-group"{}><summary>{}</summary>{}</details>')


class _Painter:
    """Renders the parts of a log in order; keeps what continues from one to the next: attempt, day, colours."""

    def __init__(self, attempt: int, zone: str, now: datetime | None) -> None:
        self._attempt = attempt
        self._zone = ZoneInfo(zone)
        self._now = now
        self._day = "" if now is None else self._date(now)
        self._classes: Classes = ()

    def parts(self, parts: Iterable[Part]) -> Iterator[Markup]:
        for part in parts:
            if isinstance(part, Lines):
                yield from self._lines(part)
            elif isinstance(part, GroupEnd):
                yield Markup('<span class="group-end"></span>')
            else:
                inner = Markup("").join(self.parts(part.lines))
                yield _GROUP.format(Markup(" open data-open") if part.open else "", coloured(part.name), inner)

    def _lines(self, lines: Lines) -> Iterator[Markup]:
        if lines.attempt != self._attempt:
            self._attempt = lines.attempt
            if lines.attempt > 1:
                yield Markup('<span class="attempt">attempt {}</span>').format(lines.attempt)
        time = Markup("")
        if lines.received_at is not None and self._now is not None:
            if (day := self._date(lines.received_at)) != self._day:
                self._day = day
                yield Markup('<b class="day" data-day="{}"></b>').format(day)
            at = lines.received_at.astimezone(self._zone)
            time = Markup(' data-time="{}.{:03d}"').format(at.strftime("%H:%M:%S"), at.microsecond // 1000)
        if not lines.joined:
            self._classes = ()
        yield from self._spans(lines, time)

    def _spans(self, lines: Lines, time: Markup) -> Iterator[Markup]:
        """Yield the complete lines, then the unfinished last line on its own: later output may overwrite it.

        `data-over`: the text starts by returning to the start of the previous line. `data-cr`: the next text does.
        """
        text, stream = lines.text, _STREAMS[lines.stream]
        attributes = Markup(' data-at="{}.{}"').format(lines.attempt, lines.seq) + time
        starts_over = not lines.joined and text.startswith("\r") and not text.startswith("\r\n")
        over = Markup(" data-over") if starts_over else ""
        back = Markup(" data-cr") if text.endswith("\r") else ""
        text = text.replace("\r\n", "\n")
        cut = text.rfind("\n") + 1
        if cut:
            whole, self._classes = _lines(text[:cut], self._classes)
            yield Markup('<span class="{}"{}{}>{}</span>').format(stream, attributes, over, whole)
        if cut < len(text):
            tail, self._classes = _lines(text[cut:], self._classes)
            begins = "" if cut else over
            yield Markup('<span class="{} tail"{}{}{}>{}</span>').format(stream, attributes, begins, back, tail)

    def _date(self, at: datetime) -> str:
        there = at.astimezone(self._zone)
        return f"{there:%a} {there.day} {there:%b} {there.year}"


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
