"""Sources that fire by elapsed time, once, or by several rules together."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from mainspring.importers.rules.wall_clock import WallRule


@dataclass(frozen=True, slots=True)
class ElapsedRule:
    """Every so many milliseconds from an instant; without one, from the time of the import."""

    every_ms: int
    start_ms: int | None = None

    def fires(self, after_ms: int) -> Iterator[int]:
        start = after_ms - after_ms % 1000 if self.start_ms is None else self.start_ms
        fire = start
        if fire <= after_ms:
            fire += ((after_ms - start) // self.every_ms + 1) * self.every_ms
        while True:
            yield fire
            fire += self.every_ms


@dataclass(frozen=True, slots=True)
class OnceRule:
    """A single instant."""

    at_ms: int

    def fires(self, after_ms: int) -> Iterator[int]:
        if self.at_ms > after_ms:
            yield self.at_ms


@dataclass(frozen=True, slots=True)
class WindowRule:
    """The fires of a rule from one instant to another, both inclusive."""

    rule: WallRule | ElapsedRule
    start_ms: int | None = None
    end_ms: int | None = None

    def fires(self, after_ms: int) -> Iterator[int]:
        for fire in self.rule.fires(after_ms if self.start_ms is None else max(after_ms, self.start_ms - 1)):
            if self.end_ms is not None and fire > self.end_ms:
                return
            yield fire


@dataclass(frozen=True, slots=True)
class TogetherRule:
    """All fires of several rules, each once."""

    rules: tuple[WallRule | ElapsedRule, ...]

    def fires(self, after_ms: int) -> Iterator[int]:
        last = None
        for fire in heapq.merge(*(rule.fires(after_ms) for rule in self.rules)):
            if fire != last:
                last = fire
                yield fire


SourceRule = WallRule | ElapsedRule | OnceRule | WindowRule | TogetherRule


def zones_of(rule: SourceRule) -> set[str]:
    """The zones whose clock changes matter to a rule."""
    match rule:
        case WallRule(zone=zone):
            return {zone}
        case WindowRule(rule=inner):
            return zones_of(inner)
        case TogetherRule(rules=rules):
            return {zone for inner in rules for zone in zones_of(inner)}
    return set()
