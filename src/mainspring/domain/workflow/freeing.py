"""What changes in a run when a user frees a failed step: which steps open again, and all counts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mainspring.domain.workflow.plan import Plan
from mainspring.domain.workflow.readiness import Parents, verdict


@dataclass(frozen=True, slots=True)
class StepStatus:
    """A step of a run, with the counts of its ended parents."""

    state: str
    flag: str | None
    parents: Parents


@dataclass(slots=True)
class Recount:
    """The change of one step behind a freed one. `opens`: it was skipped, and waits for its needs again."""

    opens: bool = False
    unmet: int = 0
    ok: int = 0
    failed: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Freed:
    recounts: dict[int, Recount] = field(default_factory=dict)
    opened: int = 0
    ends_ok: int = 0


def free(plan: Plan, number: int, steps: Mapping[int, StepStatus]) -> Freed:
    """Return the effects of counting a failed step as ok.

    Steps open again if they were skipped for its sake, by no user, and so do the steps skipped for theirs. Steps that
    ran in spite of the failure, or because of it, are not repeated.
    """
    opened: set[int] = set()
    for behind in plan.order:
        step, status = plan.steps[behind], steps[behind]
        if status.state != "skipped" or status.flag is not None:
            continue
        parents = status.parents
        if opened.intersection(step.needs):
            opened.add(behind)
        elif number in step.needs:
            counted = Parents(parents.ok + 1, parents.failed - 1, parents.skipped)
            if verdict(step.spec, counted, cancelling=False)[0] == "go":
                opened.add(behind)
    recounts: dict[int, Recount] = {behind: Recount(opens=True) for behind in opened}
    for child in plan.children[number]:
        recount = recounts.setdefault(child, Recount())
        recount.ok += 1
        recount.failed -= 1
    for parent in opened:
        for child in plan.children[parent]:
            recount = recounts.setdefault(child, Recount())
            recount.unmet += 1
            recount.skipped -= 1
    return Freed(recounts, len(opened), int(plan.is_end(number)))
