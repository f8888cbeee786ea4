"""Folds a large graph: related steps become one node that can be expanded. Pure.

Steps are numbered in topological order, and `column` is the depth of each. A fold contains steps of one column, or all
steps of a range of columns, so the folded graph has no cycles either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

MOST_NODES = 300
MOST_EDGES = 1500
RANGES = 40
OPENED = 60
"""How many steps of an expanded fold are shown as single nodes; the rest stays folded."""
_SEPARATORS = "-_.:"


@dataclass(frozen=True, slots=True)
class Fold:
    """Steps drawn as one node. A fold of one step is that step."""

    key: str
    label: str
    members: Sequence[int]
    opens: bool = False


@dataclass(slots=True)
class Folding:
    """`matters` orders the steps of an expanded fold, most important first."""

    names: Sequence[str]
    needs: Sequence[Sequence[int]]
    column: Sequence[int]
    opened: frozenset[str] = frozenset()
    matters: Callable[[int], int] = field(default=lambda _: 0)
    _stems: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self._stems = [_stem(name) for name in self.names]

    def folds(self) -> list[Fold]:
        """The folds from left to right; every step is in exactly one."""
        return [fold for part in self._parts() for fold in self._unfold(part)]

    def _parts(self) -> list[list[int]]:
        """The finest grouping within the limits of nodes and edges."""
        everything = range(len(self.names))
        for belonging in (lambda n: n, lambda n: (self.column[n], self._stems[n]), lambda n: self.column[n]):
            parts = _by(everything, belonging)
            if len(parts) <= MOST_NODES and self._edges(parts) <= MOST_EDGES:
                return sorted(parts, key=lambda part: (self.column[part[0]], part[0]))
        return self._ranges(everything, RANGES)

    def _edges(self, parts: Sequence[Sequence[int]]) -> int:
        part_of = {number: place for place, part in enumerate(parts) for number in part}
        return len({(part_of[need], part_of[n]) for n, needs in enumerate(self.needs) for need in needs})

    def _ranges(self, members: Iterable[int], most: int) -> list[list[int]]:
        """Group neighbouring columns into ranges with about the same number of steps."""
        columns = sorted({self.column[n] for n in members})
        share = -(-len(columns) // most)
        return _by(sorted(members, key=lambda n: self.column[n]), lambda n: self.column[n] // max(1, share))

    def _unfold(self, members: Sequence[int]) -> Iterator[Fold]:
        if len(members) == 1:
            yield Fold(str(members[0]), self.names[members[0]], members)
            return
        first, last = self.column[members[0]], self.column[members[-1]]
        key = f"{first}.{last}.{members[0]}"
        if key not in self.opened:
            yield Fold(key, self._label(members, first, last), members, opens=True)
        elif first == last:
            yield from self._column(members, key)
        else:
            for part in self._ranges(members, OPENED):
                single = self.column[part[0]] == self.column[part[-1]] and len(part) <= OPENED
                yield from self._column(part, key) if single else self._unfold(part)

    def _column(self, members: Sequence[int], key: str) -> Iterator[Fold]:
        seen = sorted(sorted(members, key=lambda n: (self.matters(n), n))[:OPENED])
        for number in seen:
            yield Fold(str(number), self.names[number], [number])
        if rest := [n for n in members if n not in set(seen)]:
            yield Fold(f"{key}.rest", self._label(rest, self.column[rest[0]], self.column[rest[0]]), rest)

    def _label(self, members: Sequence[int], first: int, last: int) -> str:
        if first != last:
            return f"layers {first + 1} to {last + 1}"
        stems = {self._stems[n] for n in members}
        return f"{stems.pop()}…" if len(stems) == 1 else f"layer {first + 1}"


def _stem(name: str) -> str:
    """A name without trailing numbers, which is equal for steps of one kind."""
    end = len(name)
    while end and name[end - 1].isdecimal():
        while end and name[end - 1].isdecimal():
            end -= 1
        end -= bool(end) and name[end - 1] in _SEPARATORS
    return name[:end] or name


def _by(numbers: Iterable[int], belonging: Callable[[int], object]) -> list[list[int]]:
    parts: dict[object, list[int]] = {}
    for number in numbers:
        parts.setdefault(belonging(number), []).append(number)
    return list(parts.values())
