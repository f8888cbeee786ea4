"""`docs/reference/events.md`: the event catalogue, the alert conditions and the built-in alert rules."""

from __future__ import annotations

from mainspring.domain import alert, events
from tools.reference.markdown import code, sentence, table
from tools.reference.markdown import page as make_page

_COMPARISONS = {"above": "more than", "from": "at least", "below": "less than"}


def page() -> str:
    return make_page(
        "Events and alert rules",
        "## Execution events\n\nThe lifecycle of an execution: in its timeline, in the live stream and in the log.",
        _catalogue(events.LIFECYCLE),
        "## Job notifications\n\nA job sends these to the channels that its `notify` names.",
        _catalogue(events.NOTIFICATIONS),
        "## Alert events",
        _catalogue(events.ALERTS),
        "## Subscriptions\n\nA channel can subscribe to these events. They are written to the outbox in the same"
        f" transaction as the change. `{events.TEST}` is sent by `mainspring channels test`. `execution.due` has no"
        " event of its own: `execution.queued` has the due time.",
        ", ".join(map(code, events.SUBSCRIBED)),
        "## Alert conditions",
        table(
            ("Condition", "Measures", "Unit", "One alert per"),
            [
                (code(name), sentence(found.means), found.unit, "system" if found.system else found.by or "tenant")
                for name, found in alert.CONDITIONS.items()
            ],
        ),
        "## Built-in alert rules\n\nA tenant can replace or disable each of them with `mainspring alerts set`.",
        table(
            ("Rule", "Condition", "Fires when", "Severity"),
            [
                (code(name), code(rule.condition), _threshold(rule), rule.severity)
                for name, rule in alert.BUILT_IN.items()
            ],
        ),
    )


def _catalogue(found: dict[str, str]) -> str:
    return table(("Event", "Meaning"), [(code(name), sentence(means)) for name, means in found.items()])


def _threshold(rule: alert.Rule) -> str:
    condition = alert.CONDITIONS[rule.condition]
    unit = "" if condition.unit == "ratio" else f" {condition.unit}" if condition.unit else ""
    only = f", {condition.by} `{rule.only}`" if rule.only else ""
    lasting = f", for {rule.for_s:g} s" if rule.for_s else ""
    return f"{_COMPARISONS[condition.broken]} {rule.threshold:,g}{unit}{only}{lasting}"
