"""Evaluates the conditions of steps that are too costly for the event loop, in a process that can be killed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mainspring.clock import Clock, SystemClock
from mainspring.domain.workflow import condition
from mainspring.domain.workflow.condition import ConditionError
from mainspring.killable import Failed, KillableFunction, Killed, Limits

LIMITS = Limits(cpu_s=1.0, wall_s=2.0)
TOGETHER_S = 3.0
"""How long all costly expressions of a transaction may take: it holds locks, and the database ends an idle one."""
REFUSED_S = 600.0
"""How long an expression that took too much time is not evaluated again."""
MAX_REFUSED = 1000

Evaluated = Mapping[str, Any]
"""Values of expressions by their text; a ConditionError stands for one that has none."""


def evaluate(text: str, values: dict[str, Any]) -> list[Any]:
    """Evaluate an expression in the other process: its value, or what is wrong with it."""
    try:
        return [condition.evaluate(text, values), None]
    except ConditionError as error:
        return [None, str(error)]


@dataclass(slots=True)
class EvaluationTime:
    """What is left for the costly expressions of one transaction."""

    left_s: float = TOGETHER_S


class Expressions:
    """Evaluates costly expressions one after another, each with a limit on its CPU time."""

    def __init__(self, clock: Clock | None = None, limits: Limits | None = None) -> None:
        self._clock = clock or SystemClock()
        self._function = KillableFunction("mainspring.runs.expressions:evaluate", limits or LIMITS)
        self._refused: dict[str, float] = {}

    async def evaluated(
        self, texts: Iterable[str | None], values: dict[str, Any], time: EvaluationTime | None = None
    ) -> Evaluated:
        """Return the values of those expressions that are not cheap; the others are evaluated where they are read."""
        costly = [text for text in texts if text is not None and not condition.is_cheap(text, values)]
        time = time or EvaluationTime()
        return {text: await self._value(text, values, time) for text in costly}

    async def _value(self, text: str, values: dict[str, Any], time: EvaluationTime) -> Any:
        now = self._clock.monotonic()
        if self._refused.get(text, now) > now:
            return ConditionError(f"{text!r} took too much CPU time or memory a short while ago")
        if time.left_s <= 0:
            return ConditionError(f"{text!r}: the conditions of steps that start together take too long")
        try:
            value, wrong = await self._function.call(text, values, wall_s=min(time.left_s, LIMITS.wall_s))
        except Killed:
            if len(self._refused) >= MAX_REFUSED:
                self._refused.clear()
            self._refused[text] = now + REFUSED_S
            return ConditionError(f"{text!r} takes too much CPU time or memory")
        except Failed as error:
            return ConditionError(f"{text!r}: {error}")
        finally:
            time.left_s -= self._clock.monotonic() - now
        return value if wrong is None else ConditionError(wrong)

    async def prepare(self) -> None:
        """Start the other process before an expression is in a transaction that waits for it."""
        await asyncio.to_thread(self._function.start)

    def close(self) -> None:
        self._function.close()


EXPRESSIONS = Expressions()
"""Of this process. The other process starts with the first costly expression, and ends with this one."""


def value_of(text: str, values: dict[str, Any], evaluated: Evaluated) -> Any:
    """Return the value of an expression: already evaluated, or cheap."""
    if text not in evaluated:
        return condition.evaluate(text, values)
    if isinstance(found := evaluated[text], ConditionError):
        raise found
    return found


def holds(text: str, values: dict[str, Any], evaluated: Evaluated) -> bool:
    """Whether a condition holds. A value that is not a boolean raises ConditionError."""
    return condition.as_bool(text, value_of(text, values, evaluated))
