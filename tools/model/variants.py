"""The model as it is, and variants of it without a guard: each must violate the invariant that the guard is there for.

A guard that another one makes redundant is removed together with that one; `REDUNDANT` has those that can be removed
alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tools.model import attempts, firing
from tools.model.checker import Report, check


@dataclass(frozen=True)
class Variant:
    """`removed` guards of a model, and the invariant that must be violated then; None: all must hold."""

    protocol: str
    removed: tuple[str, ...] = ()
    violates: str | None = None

    @property
    def title(self) -> str:
        return (
            f"{self.protocol}, without {' and '.join(self.removed)}" if self.removed else f"{self.protocol}, complete"
        )

    def run(self, *, faults: int = 1) -> Report[Any]:
        removed = frozenset(self.removed)
        if self.protocol == "firing":
            assert removed <= firing.GUARDS, removed
            return check(firing.Firing(firing.GUARDS - removed, faults=faults))
        assert removed <= attempts.GUARDS, removed
        return check(attempts.Attempts(attempts.GUARDS - removed, delivery=self.protocol))


COMPLETE = (Variant("firing"), Variant("at_least_once"), Variant("at_most_once"))

REDUNDANT = (
    Variant("firing", ("id",)),  # epoch and watermark rule repeats out; the id is a second net
    Variant("firing", ("owner",)),  # every change of owner moves the epoch
)

BROKEN = (
    Variant("firing", ("epoch",), "I17"),
    Variant("firing", ("epoch", "owner"), "I17"),
    Variant("firing", ("watermark",), "I1"),
    Variant("firing", ("changes",), "I3"),
    Variant("firing", ("beat changes",), "I3"),
    Variant("firing", ("database time",), "I4"),
    Variant("firing", ("one transaction",), "I3"),
    Variant("firing", ("row lock",), "I17"),
    Variant("firing", ("takeover",), "I2"),
    Variant("at_least_once", ("session",), "I6"),
    Variant("at_least_once", ("attempt",), "I6"),
    Variant("at_least_once", ("state",), "I10"),
    Variant("at_least_once", ("claim state",), "I10"),
    Variant("at_least_once", ("cancel state",), "I10"),
    Variant("at_least_once", ("guardian",), "I6"),
    Variant("at_least_once", ("commit first",), "I6"),
    Variant("at_least_once", ("start once",), "I6"),
    Variant("at_least_once", ("attempt grows",), "I7"),
    Variant("at_least_once", ("session cleared",), "I9"),
    Variant("at_least_once", ("rescue",), "I16"),
    Variant("at_most_once", ("delivery",), "I8"),
    Variant("at_most_once", ("start once",), "I8"),
    Variant("at_most_once", ("state",), "I14"),
)
