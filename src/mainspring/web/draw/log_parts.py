"""Divides a log into what a reader folds: lines by the chunk they begin in, groups by markers, a collapsed middle.

A program begins a group with a line `::group::name` and ends it with `::endgroup::`. Groups do not nest.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeAlias

from mainspring import wire

FOLD_OVER_LINES = 500
"""Only longer logs are folded."""
LAST_LINES = 300
FIRST_LINES = 40
"""Lines that stay visible around the fold. Without the beginning of the log, the first line and the last ones do: the
first may be the end of a line whose beginning is loaded later, and must join it."""
MAX_GROUP_NAME = 200
_MARKER = re.compile(r"^::(?:group::(?P<name>[^\r\n]*)\r?\n|endgroup::[^\n]*(?:\n|\Z))", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of one stream that begin in the same chunk; the last one may be unfinished.

    `joined`: continues the text before it, so colours stay in effect.
    """

    attempt: int
    seq: int
    stream: wire.Stream
    received_at: datetime | None
    text: str
    joined: bool = False

    @property
    def count(self) -> int:
        return self.text.count("\n") + (not self.text.endswith("\n"))

    def split(self, count: int) -> tuple[Lines, Lines]:
        """Return the first `count` lines and the rest."""
        at = 0
        for _ in range(count):
            at = self.text.index("\n", at) + 1
        return self.part(0, at), self.part(at, len(self.text))

    def part(self, start: int, end: int) -> Lines:
        return replace(self, text=self.text[start:end], joined=self.joined or start > 0)


@dataclass(slots=True)
class Group:
    """Lines between two markers. `open`: the end was not seen."""

    name: str
    lines: list[Lines] = field(default_factory=list)
    open: bool = True
    count = 1
    """Collapsed, it takes one line."""


@dataclass(frozen=True, slots=True)
class GroupEnd:
    """The end of a group that began in an earlier part of the log."""

    count = 0


Part: TypeAlias = Lines | Group | GroupEnd


@dataclass(frozen=True, slots=True)
class Folded:
    """Parts in order: shown, collapsed, shown. Without a fold, all are in `last`."""

    first: list[Part]
    hidden: list[Part]
    last: list[Part]

    @property
    def count(self) -> int:
        return sum(part.count for part in self.hidden)


def lines_of(chunks: Iterable[wire.LogChunk]) -> Iterator[Lines]:
    """Yield the lines by the chunk in which they begin; a line may end in a later chunk of its stream."""
    for _, same in itertools.groupby(chunks, key=lambda chunk: (chunk.attempt, chunk.stream)):
        pieces = list(same)
        text = "".join(piece.text for piece in pieces)
        starts = [0, *itertools.accumulate(len(piece.text) for piece in pieces)]
        begins = [_line_start(text, start) for start in starts[:-1]] + [len(text)]
        for piece, start, end in zip(pieces, begins, begins[1:], strict=False):
            if start < end:
                at = piece.received_at
                yield Lines(piece.attempt, piece.seq, piece.stream, at, text[start:end], joined=start > 0)


def _line_start(text: str, offset: int) -> int:
    """Return where the first line starts that does not begin before `offset`."""
    if offset == 0 or text[offset - 1] == "\n":
        return offset
    return text.find("\n", offset) + 1 or len(text)


def grouped(lines: Iterable[Lines]) -> list[Part]:
    """Collect lines into the groups that their markers describe. Another attempt ends an open group."""
    parts: list[Part] = []
    group: Group | None = None
    for given in lines:
        if group is not None and group.lines and group.lines[-1].attempt != given.attempt:
            group.open, group = False, None
        for piece in _at_markers(given):
            if isinstance(piece, Lines):
                (parts if group is None else group.lines).append(piece)
                continue
            if group is not None:
                group.open = False
            elif isinstance(piece, GroupEnd):
                parts.append(piece)
            group = piece if isinstance(piece, Group) else None
            if group is not None:
                parts.append(group)
    return parts


def _at_markers(given: Lines) -> Iterator[Part]:
    if "::" not in given.text:
        yield given
        return
    start = 0
    for marker in _MARKER.finditer(given.text):
        if marker.start() > start:
            yield given.part(start, marker.start())
        name = marker["name"]
        yield GroupEnd() if name is None else Group(name.strip()[:MAX_GROUP_NAME] or "Group")
        start = marker.end()
    if start < len(given.text):
        yield given.part(start, len(given.text))


def folded(parts: Sequence[Part], *, has_start: bool) -> Folded:
    """Collapse the middle of a long log. Without its start, collapse all but the first line and the last ones."""
    total = sum(part.count for part in parts)
    if total <= FOLD_OVER_LINES:
        return Folded([], [], list(parts))
    first, rest = _cut(parts, FIRST_LINES if has_start else 1)
    hidden, last = _cut(rest, total - LAST_LINES - sum(part.count for part in first))
    return Folded(first, hidden, last)


def _cut(parts: Sequence[Part], count: int) -> tuple[list[Part], list[Part]]:
    before: list[Part] = []
    for n, part in enumerate(parts):
        if part.count > count:
            if count == 0 or not isinstance(part, Lines):
                return before, list(parts[n:])
            head, tail = part.split(count)
            return [*before, head], [tail, *parts[n + 1 :]]
        before.append(part)
        count -= part.count
    return before, []
