"""Decide what a delivery leads to: whether it counts, and the params of the execution. Writes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from mainspring.codec import refuse_large_integers
from mainspring.domain.errors import Invalid, clipped
from mainspring.domain.template import TooMuchInserted
from mainspring.domain.trigger import DeliveryOutcome, TriggerSpec, WebhookSource
from mainspring.domain.workflow.condition import ConditionError
from mainspring.domain.workflow.inputs import resolved
from mainspring.runs.expressions import EXPRESSIONS, Evaluated, holds, value_of

MAX_REASON_CHARS = 500
MAX_PARAMS_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Decision:
    """What a delivery leads to; `started` is still to be done."""

    outcome: DeliveryOutcome
    reason: str | None = None
    params: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """A delivery: its key, the name of its event, and the values that conditions and templates can read."""

    key: str
    event: str | None
    values: dict[str, Any]


async def decide(spec: TriggerSpec, arrival: Arrival) -> Decision:
    """Apply the filters of a trigger, and map the params. Costly expressions run in a process that can be killed."""
    if isinstance(spec.source, WebhookSource) and spec.source.events and arrival.event not in spec.source.events:
        shown = "no event" if arrival.event is None else f"the event {arrival.event!r}"
        return refusal("filtered", f"{shown} is not among the accepted ones: {', '.join(spec.source.events)}")
    expressions = [*spec.expressions.values(), *([] if spec.when is None else [spec.when])]
    evaluated = await EXPRESSIONS.evaluated(expressions, arrival.values)
    if spec.when is not None:
        try:
            if not holds(spec.when, arrival.values, evaluated):
                return refusal("filtered", f"the condition is false: {spec.when}")
        except ConditionError as error:
            return refusal("filtered", f"the condition has no value: {error}")
    return _with_params(spec, arrival, evaluated)


def refusal(outcome: DeliveryOutcome, reason: str) -> Decision:
    return Decision(outcome, clipped(reason, MAX_REASON_CHARS))


def _with_params(spec: TriggerSpec, arrival: Arrival, evaluated: Evaluated) -> Decision:
    try:
        params, _ = resolved(spec.params, arrival.values)
        params |= {name: value_of(text, arrival.values, evaluated) for name, text in spec.expressions.items()}
    except ConditionError as error:
        return refusal("refused", f"an expression has no value: {error}")
    except TooMuchInserted as error:
        return refusal("refused", str(error.args[0]))
    except KeyError as error:
        return refusal("refused", f"params: the delivery has no {error.args[0]}")
    if not params:
        return Decision("started")
    try:
        content = msgspec.json.encode(params)
        refuse_large_integers(content)
    except (Invalid, TypeError, ValueError) as error:
        return refusal("refused", f"params: {error}")
    if len(content) > MAX_PARAMS_BYTES:
        return refusal("refused", f"params have more than {MAX_PARAMS_BYTES:,} bytes")
    return Decision("started", params=msgspec.json.decode(content))
