"""Decides whether a step starts once its needs have ended, and how a run ends. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mainspring.domain.workflow.spec import RunState, Step

Weight = Literal["ok", "failed", "skipped"]
"""How the outcome of a step counts for its dependents: a manual skip counts as ok, a skip by condition does not."""

WEIGHTS: dict[str, Weight] = {
    "succeeded": "ok", "failed": "failed", "timed_out": "failed", "cancelled": "failed", "lost": "failed",
    "skipped": "skipped",
}  # fmt: skip


UPSTREAM = ("a needed step failed", "a needed step was skipped", "no needed step succeeded")
"""Skip reasons that come from needed steps, not from the condition of the step."""


@dataclass(frozen=True, slots=True)
class Parents:
    """Outcome counts of the steps that a step needs."""

    ok: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def total(self) -> int:
        return self.ok + self.failed + self.skipped


def verdict(step: Step, parents: Parents, *, cancelling: bool) -> tuple[Literal["go", "skipped", "cancelled"], str]:
    """Decide whether a step starts once all its needs have ended, and if not, why."""
    if cancelling and step.rule != "always":
        return "cancelled", "the run was cancelled"
    match step.rule:
        case "all_done" | "always":
            return "go", ""
        case "any_succeeded":
            return ("go", "") if parents.ok or not parents.total else ("skipped", UPSTREAM[2])
        case "none_failed":
            return ("go", "") if not parents.failed else ("skipped", UPSTREAM[0])
        case _:
            if parents.ok == parents.total or step.on_upstream_failure == "go_on":
                return "go", ""
            return "skipped", UPSTREAM[0] if parents.failed else UPSTREAM[1]


def outcome(*, failed: int, ends_ok: int, ends_as: str | None) -> RunState:
    """The outcome of a run whose steps have all ended: `partial` if some failed but an end step succeeded."""
    if ends_as is not None:
        return "timed_out" if ends_as == "timed_out" else "cancelled"
    if not failed:
        return "succeeded"
    return "partial" if ends_ok else "failed"
