"""Draw a graph of steps as text: columns joined by lines if they fit, else a list."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mainspring.cli.output import display_width, is_terminal

MAX_ROWS = 40
MIN_COLUMN_WIDTH = 6
"""Graphs with more columns than the width allows at this minimum are printed as a list."""
MAX_LIST_LINES = 400
"""A longer list is cut in the middle."""
MAX_LISTED_ALIKE = 6
"""More steps than this with the same level and dependencies share one line of a list."""
_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_LINES = " ││││┘┐┤│└┌├─┴┬┼"  # by the directions that meet; no line ends in the open
_LINES = "".join("─" if mask in (_LEFT, _RIGHT) else mark for mask, mark in enumerate(_LINES))

Paint = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Node:
    """A step: its label and the steps it needs. `paint` colours the label."""

    name: str
    needs: Sequence[str]
    label: str
    paint: Paint = str


@dataclass(slots=True)
class _Cell:
    """A step in its column, or a line that passes through the column to a later one."""

    node: Node | None
    before: list[_Cell]
    row: int = 0


def graph_lines(nodes: Sequence[Node], width: int) -> list[str]:
    """Draw the graph, in topological order; no line is wider than `width`, except for a single long name."""
    sizes = Counter(_levels(nodes).values())
    if max(sizes.values()) <= MAX_ROWS and len(sizes) <= width // MIN_COLUMN_WIDTH:
        columns = _columns(nodes)
        for place in (_place, _place_straight):
            place(columns)
            drawn = _draw(columns)
            if drawn is not None and max(size for size, _ in drawn) <= width:
                return [line for _, line in drawn] + (_needs(nodes, width) if _meet(columns) else [])
    return _listed(nodes, width)


def drawing_width() -> int:
    """The width for drawings: of the terminal; for a file or a pipe COLUMNS, or 120."""
    if is_terminal(sys.stdout):
        return shutil.get_terminal_size().columns
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and int(columns) > 0 else 120


def _levels(nodes: Sequence[Node]) -> dict[str, int]:
    level: dict[str, int] = {}
    for node in nodes:
        level[node.name] = 1 + max((level[need] for need in node.needs), default=-1)
    return level


# Columns ---------------------------------------------------------------------------------------------


def _columns(nodes: Sequence[Node]) -> list[list[_Cell]]:
    """A column of cells per level; an edge to a later level passes through the columns between, on one shared line."""
    level = _levels(nodes)
    columns: list[list[_Cell]] = [[] for _ in range(1 + max(level.values()))]
    ways: dict[tuple[str, int], _Cell] = {}

    def way(name: str, upto: int) -> _Cell:
        if (name, upto) not in ways:
            columns[upto].append(ways.setdefault((name, upto), _Cell(None, [way(name, upto - 1)])))
        return ways[name, upto]

    for node in nodes:
        own = level[node.name]
        ways[node.name, own] = cell = _Cell(node, [way(need, own - 1) for need in node.needs])
        columns[own].append(cell)
    return columns


def _place(columns: Sequence[list[_Cell]]) -> None:
    """Place each cell near its predecessors, with passing lines below the steps."""
    for column in columns:
        wish = {id(c): sum(b.row for b in c.before) / len(c.before) if c.before else 0.0 for c in column}
        column.sort(key=lambda c: (wish[id(c)], c.node is None))
        free = 0
        for cell in column:
            cell.row = max(free, int(wish[id(cell)]))
            free = cell.row + 1


def _place_straight(columns: Sequence[list[_Cell]]) -> None:
    """Fallback if lines would collide: keep passing lines straight and place the steps around them."""
    for column in columns:
        taken = set()
        for cell in sorted(column, key=lambda c: c.node is not None):
            wish = sum(b.row for b in cell.before) / len(cell.before) if cell.before else 0.0
            cell.row = min(
                (r for r in range(2 * len(column) + MAX_ROWS) if r not in taken), key=lambda r: abs(r - wish)
            )
            taken.add(cell.row)


def _meet(columns: Sequence[Sequence[_Cell]]) -> bool:
    """Whether lines that lead to different steps meet, so that the drawing alone is ambiguous."""
    for column in columns:
        starts: dict[int, set[int]] = {}
        for cell in column:
            for before in cell.before:
                starts.setdefault(before.row, set()).add(cell.row)
        ends = list(map(frozenset, starts.values()))
        if any(a != b and a & b for a in ends for b in ends):
            return True
    return False


def _needs(nodes: Sequence[Node], width: int) -> list[str]:
    lines = [f"  {node.name} after {', '.join(node.needs)}" for node in nodes if node.needs]
    return ["", *(line if display_width(line) <= width else line[: width - 1] + "…" for line in lines)]


def _draw(columns: Sequence[Sequence[_Cell]]) -> list[tuple[int, str]] | None:
    """The lines with their widths; None if there are too many, or if they would be ambiguous."""
    rows = 1 + max(cell.row for column in columns for cell in column)
    if rows > MAX_ROWS:
        return None
    lines = [""] * rows
    sizes = [0] * rows
    for number, column in enumerate(columns):
        after = columns[number + 1] if number + 1 < len(columns) else ()
        between = _gutter(column, after, rows)
        if between is None:
            return None
        gutter, starts = between
        wide = max(display_width(cell.node.label) if cell.node is not None else 0 for cell in column)
        by_row = {cell.row: cell for cell in column}
        for row in range(rows):
            cell = by_row.get(row)
            label = cell.node.label if cell is not None and cell.node is not None else ""
            line = "─" if row in starts else " "
            rest = wide - display_width(label)
            text = cell.node.paint(label) if cell is not None and cell.node is not None else ""
            if label:
                text += (" " + line * rest)[: rest + 1] if rest >= 0 else ""
            else:
                text = line * (wide + 1) if cell is not None else " " * (wide + 1)
            lines[row] += text + gutter[row]
            sizes[row] += wide + 1 + len(gutter[row])
    return [(len_ - (len(line) - len(line.rstrip())), line.rstrip()) for len_, line in zip(sizes, lines, strict=True)]


def _gutter(column: Sequence[_Cell], after: Sequence[_Cell], rows: int) -> tuple[list[str], set[int]] | None:
    """The text between two columns in each row, and the rows from which a line continues."""
    if not after:
        return [""] * rows, set()
    goes: dict[int, set[int]] = {}
    for cell in after:
        for before in cell.before:
            goes.setdefault(before.row, set()).add(cell.row)
    shared: dict[frozenset[int], set[int]] = {}  # cells with the same successors share a line
    for start, ends in goes.items():
        shared.setdefault(frozenset(ends), set()).add(start)
    buses = [_Bus(starts, ends) for ends, starts in shared.items()]
    if not _channels(buses):
        return None
    masks = [[0] * (max(bus.place for bus in buses) + 2) for _ in range(rows)]
    for bus in buses:
        bus.mark(masks)
    passed = {(row, bus.place) for bus in buses for row in range(bus.low, bus.high) if row not in bus.touched}
    heads = {cell.row: cell.node is not None for cell in after if cell.before}
    found = []
    for row in range(rows):
        # A crossing is drawn as the vertical line alone, unlike a junction.
        text = "".join("│" if (row, x) in passed else _LINES[mask] for x, mask in enumerate(masks[row]))
        found.append(text[:-1] + ("▶ " if heads[row] else "──") if row in heads else text + " ")
    return found, set(goes)


class _Bus:
    """A vertical line at one place that joins start rows with end rows."""

    def __init__(self, starts: set[int], ends: frozenset[int]) -> None:
        self.starts, self.ends = starts, ends
        self.touched = starts | ends
        self.low, self.high = min(self.touched), max(self.touched)
        self.place = 0

    def must_precede(self, other: _Bus) -> bool:
        """Whether it must be left of `other`, which would otherwise seem to start in the same row."""
        return any(row in other.ends and row not in self.ends for row in self.starts)

    def mark(self, masks: list[list[int]]) -> None:
        for row in range(self.low, self.high):
            masks[row][self.place] |= _DOWN
            masks[row + 1][self.place] |= _UP
        for row in self.starts:
            for x in range(self.place):
                masks[row][x] |= _LEFT | _RIGHT
            masks[row][self.place] |= _LEFT
        for row in self.ends:
            masks[row][self.place] |= _RIGHT
            for x in range(self.place + 1, len(masks[row])):
                masks[row][x] |= _LEFT | _RIGHT


def _channels(buses: Sequence[_Bus]) -> bool:
    """Assign each bus a place where it touches no other and is unambiguous; False if that is impossible."""
    left = sorted(buses, key=lambda bus: min(bus.starts))
    placed: list[_Bus] = []
    while left:
        bus = next((b for b in left if not any(o is not b and o.must_precede(b) for o in left)), None)
        if bus is None:
            return False
        left.remove(bus)
        least = 1 + max((o.place for o in placed if o.must_precede(bus)), default=0)
        taken = {o.place for o in placed if o.low <= bus.high and bus.low <= o.high}
        bus.place = next(place for place in range(least, least + len(placed) + 1) if place not in taken)
        placed.append(bus)
    return True


# Lists -----------------------------------------------------------------------------------------------


def _listed(nodes: Sequence[Node], width: int) -> list[str]:
    """One line per step with its level and dependencies; many alike share a line."""
    level = _levels(nodes)
    groups: dict[tuple[int, tuple[str, ...], str], list[Node]] = {}
    for node in nodes:
        groups.setdefault((level[node.name], tuple(node.needs), node.label.partition(" ")[0]), []).append(node)
    lines: list[str] = []
    digits = len(str(1 + max(level.values())))
    for (number, needs, _), members in sorted(groups.items(), key=lambda group: group[0][0]):
        shown = members if len(members) <= MAX_LISTED_ALIKE else [members[0]]
        for node in shown:
            label = node.label
            if len(shown) < len(members):
                label += f" … {members[-1].name} ({len(members):,} steps)"
            named = needs if len(needs) <= MAX_LISTED_ALIKE else (f"{needs[0]} … {needs[-1]} ({len(needs):,} steps)",)
            after = f"  after {', '.join(named)}" if needs else ""
            room = max(0, width - digits - 2 - display_width(label))
            after = after if display_width(after) <= room else after[: max(0, room - 1)] + "…" if room > 12 else ""
            lines.append(f"{number + 1:>{digits}}  {node.paint(label)}{after}")
    if len(lines) > MAX_LIST_LINES:
        half = MAX_LIST_LINES // 2
        lines[half:-half] = [f"   … {len(lines) - MAX_LIST_LINES:,} more lines; -o json prints all steps"]
    return lines
