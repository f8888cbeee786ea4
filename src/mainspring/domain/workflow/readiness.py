"""What follows when all that a step needs has ended, and how a run ends. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mainspring.domain.workflow.spec import RunState, Step

Weight = Literal["ok", "failed", "skipped"]
"""How the end of a step counts for those behind it: a person's skip counts as ok, a condition's does not."""

WEIGHTS: dict[str, Weight] = {
    "succeeded": "ok", "failed": "failed", "timed_out": "failed", "cancelled": "failed", "lost": "failed",
    "skipped": "skipped",
}  # fmt: skip


UPSTREAM = ("a step before it failed", "a step before it was skipped", "nothing before it succeeded")
"""Why a step is skipped because of those before it, and not by its own condition."""


@dataclass(frozen=True, slots=True)
class Parents:
    """How those ended that a step needs."""

    ok: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def total(self) -> int:
        return self.ok + self.failed + self.skipped


def verdict(step: Step, parents: Parents, *, cancelling: bool) -> tuple[Literal["go", "skipped", "cancelled"], str]:
    """Whether a step starts now that nothing before it is open, and if not, why."""
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
    """How a run ends whose steps have all ended: `partial` if some failed, and yet some end was reached."""
    if ends_as is not None:
        return "timed_out" if ends_as == "timed_out" else "cancelled"
    if not failed:
        return "succeeded"
    return "partial" if ends_ok else "failed"
