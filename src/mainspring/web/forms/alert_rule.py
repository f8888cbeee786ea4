"""The form of an alert rule on the alerts page: its values as text, and what a submitted form means."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, get_args

from mainspring import wire
from mainspring.codec import decode, encode
from mainspring.domain.alert import CONDITIONS, Rule, Severity
from mainspring.domain.duration import format_duration, parse_duration
from mainspring.domain.errors import Invalid, MainspringError, Problem
from mainspring.store.alerts import SeenRule
from mainspring.web.forms.definition import problems_of
from mainspring.web.forms.fields import Field

CHANNEL_PREFIX = "to:"
"""Each channel has a checkbox of its own: the last of several fields with the same name would count."""
_UNITS = {"ratio": "Threshold (0 to 1)", "s": "Threshold (seconds)", "times": "Threshold (times)", "": "Threshold"}
_SEVERITIES = tuple(sorted(get_args(Severity), key=lambda level: level != "warning"))
"""The default first, as a choice without a value."""
_FIRES = {"above": "Fires above this.", "from": "Fires from this value on.", "below": "Fires below this."}


def fields_of(rule: Rule) -> tuple[Field, ...]:
    """Return the fields of a rule; the threshold says its unit, and `only` what it selects."""
    condition = CONDITIONS.get(rule.condition)
    label, help = "Threshold", ""
    if condition is not None:
        label, help = _UNITS[condition.unit], _FIRES[condition.broken]
    fields = [
        Field("threshold", "/threshold", label, help=help, size="short"),
        Field("for", "/for", "For", hint="0s", help="Time before it fires: 2m, 1h.", size="short"),
        Field("severity", "/severity", "Severity", "choice", options=_SEVERITIES),
    ]
    if condition is not None and condition.by:
        label = {"key": "channel"}.get(condition.by, condition.by)
        fields.append(Field("only", "/only", f"Only this {label}", hint=f"every {label}"))
    return (*fields, Field("enabled", "/enabled", "Enabled", "flag"))


@dataclass(slots=True)
class RuleForm:
    """The rule that is edited in place: submitted or current values, and errors by field."""

    name: str
    fields: tuple[Field, ...]
    values: dict[str, str]
    chosen: tuple[str, ...]
    seen: str
    errors: dict[str, list[Problem]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    status: int = 200

    def refuse(self, error: MainspringError) -> None:
        """Place each problem beside its field; the rest is shown above the form."""
        self.status = 422 if isinstance(error, Invalid) else 409
        for problem in problems_of(error):
            name = "channels" if problem.pointer.startswith("/channels") else problem.pointer.strip("/")
            if name == "channels" or any(f.name == name for f in self.fields):
                self.errors.setdefault(name, []).append(problem)
            else:
                self.problems.append(problem)


def form_of(found: wire.AlertRule) -> RuleForm:
    """Return the form with the current values of a rule."""
    rule = found.rule
    values = {
        "threshold": f"{rule.threshold:.15g}",
        "for": format_duration(rule.for_s) if rule.for_s else "",
        "severity": rule.severity,
        "only": rule.only or "",
        "enabled": "1" if rule.enabled else "",
    }
    seen = "" if found.updated_at is None else found.updated_at.isoformat()
    return RuleForm(found.name, fields_of(rule), values, rule.channels, seen)


def submitted(found: wire.AlertRule, form: Mapping[str, str]) -> RuleForm:
    """Return the form with the values that were sent."""
    fields = fields_of(found.rule)
    values = {f.name: form.get(f.name, "").strip() for f in fields}
    chosen = tuple(name.removeprefix(CHANNEL_PREFIX) for name in form if name.startswith(CHANNEL_PREFIX))
    return RuleForm(found.name, fields, values, chosen, form.get("seen", ""))


def read_rule(found: wire.AlertRule, form: RuleForm) -> Rule:
    """Return the rule that a form describes; Invalid with a pointer to each field that is wrong."""
    problems: list[Problem] = []
    values: dict[str, Any] = {
        "condition": found.rule.condition,
        "severity": form.values["severity"] or "warning",
        "only": form.values.get("only", found.rule.only) or None,
        "channels": list(form.chosen),
        "enabled": bool(form.values["enabled"]),
    }
    text = form.values["threshold"]
    values["threshold"] = _number(text)
    if not math.isfinite(values["threshold"]):
        problems.append(Problem("/threshold", f"{text[:40]!r} is not a number", "write for example 5000 or 0.95"))
    try:
        values["for"] = parse_duration(form.values["for"] or "0")
    except ValueError as error:
        problems.append(Problem("/for", str(error)))
    if problems:
        raise Invalid(problems[0].message, code="bad_rule", problems=tuple(problems))
    return decode(encode(values), Rule)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def seen_rule(text: str) -> SeenRule:
    """Return the state that a form was filled from."""
    if not text:
        return SeenRule(None)
    try:
        return SeenRule(datetime.fromisoformat(text))
    except ValueError:
        raise Invalid("the form is damaged; reload the page", code="bad_rule") from None
