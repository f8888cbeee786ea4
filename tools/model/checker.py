"""A breadth-first model checker: every reachable state, and a shortest trace to a violation.

A model has an initial state and, for each state, its possible steps. States are hashable values. Three kinds of
invariant: of a state, of a step, and progress: from every reachable state, one that satisfies the goal can be
reached.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)


class Model(Protocol[S]):
    """What the checker needs to know of a model."""

    def initial(self) -> S: ...

    def steps(self, state: S) -> Iterable[tuple[str, S]]: ...

    def of_state(self) -> Mapping[str, Callable[[S], bool]]: ...

    def of_step(self) -> Mapping[str, Callable[[S, S], bool]]: ...

    def progress(self) -> tuple[str, Callable[[S], bool]]: ...


@dataclass
class Report(Generic[S]):
    """What a check found; `invariant` is None if everything holds."""

    states: int = 0
    steps: int = 0
    invariant: str | None = None
    trace: list[tuple[str, S]] = field(default_factory=list)

    def text(self) -> str:
        """The trace as lines, for a person."""
        if self.invariant is None:
            return f"all invariants hold in {self.states:,} states and {self.steps:,} steps"
        lines = [f"{self.invariant} is violated after {len(self.trace) - 1} steps:"]
        lines += [f"{n:4} {action:<34} {state}" for n, (action, state) in enumerate(self.trace)]
        return "\n".join(lines)


@dataclass
class _Search(Generic[S]):
    """The graph found so far: for each state its number, the step that led to it, and its predecessors."""

    model: Model[S]
    numbers: dict[S, int] = field(default_factory=dict)
    states: list[S] = field(default_factory=list)
    origin: list[tuple[int, str]] = field(default_factory=list)
    before: list[list[int]] = field(default_factory=list)
    steps: int = 0

    def add(self, state: S, origin: int, action: str) -> int:
        number = len(self.states)
        self.numbers[state] = number
        self.states.append(state)
        self.origin.append((origin, action))
        self.before.append([])
        return number

    def trace(self, number: int) -> list[tuple[str, S]]:
        found = []
        while number >= 0:
            origin, action = self.origin[number]
            found.append((action, self.states[number]))
            number = origin
        return found[::-1]

    def report(self, invariant: str | None, trace: list[tuple[str, S]]) -> Report[S]:
        return Report(len(self.states), self.steps, invariant, trace)

    def run(self) -> Report[S]:
        of_state, of_step = self.model.of_state().items(), self.model.of_step().items()
        waiting = deque([self.add(self.model.initial(), -1, "start")])
        while waiting:
            number = waiting.popleft()
            state = self.states[number]
            for action, after in self.model.steps(state):
                self.steps += 1
                for name, holds in of_step:
                    if not holds(state, after):
                        return self.report(name, [*self.trace(number), (action, after)])
                found = self.numbers.get(after)
                if found is None:
                    found = self.add(after, number, action)
                    for name, fine in of_state:
                        if not fine(after):
                            return self.report(name, self.trace(found))
                    waiting.append(found)
                self.before[found].append(number)
        return self._progress()

    def _progress(self) -> Report[S]:
        """Search backwards from the goal; the first state that is not met can't reach it."""
        name, reached = self.model.progress()
        can = [reached(state) for state in self.states]
        waiting = deque(number for number, yes in enumerate(can) if yes)
        while waiting:
            for number in self.before[waiting.popleft()]:
                if not can[number]:
                    can[number] = True
                    waiting.append(number)
        if all(can):
            return self.report(None, [])
        return self.report(name, self.trace(can.index(False)))


def check(model: Model[S]) -> Report[S]:
    """Visit every reachable state of a model; stop at the first violation, which has the shortest trace."""
    return _Search(model).run()
