"""An independent check of starts: what tasks wrote outside the database, against what the database says.

Every task appends a line when it starts and one when it ends: `start|end execution attempt boot-time`. The check knows
nothing of how executions are scheduled: it joins these lines, the executions, and the writes that the api acknowledged.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

SCRIPT = (
    'echo "start $MAINSPRING_EXECUTION_ID $MAINSPRING_ATTEMPT $(cut -d" " -f1 /proc/uptime)" >> {file};'
    ' {work}; echo "end $MAINSPRING_EXECUTION_ID $MAINSPRING_ATTEMPT $(cut -d" " -f1 /proc/uptime)" >> {file}'
)
"""A shell task that leaves evidence around its work."""

TICK_S = 0.02
"""Lines have hundredths of a second, cut off."""


@dataclass(frozen=True)
class Line:
    """One line of evidence."""

    what: str
    execution: str
    attempt: int
    at_s: float


@dataclass
class Offences:
    """Violations, each with the execution concerned."""

    doubled: list[str] = field(default_factory=list)  # the same attempt started twice
    repeated: list[str] = field(default_factory=list)  # at_most_once started more than once
    overlapping: list[str] = field(default_factory=list)  # an attempt started before the last one ended
    early: list[str] = field(default_factory=list)  # started before it was due
    orphans: list[str] = field(default_factory=list)  # started, but no such execution
    lost: list[str] = field(default_factory=list)  # acknowledged, but no such execution, or not with that content

    @property
    def none(self) -> bool:
        return not (self.doubled or self.repeated or self.overlapping or self.early or self.orphans or self.lost)


def lines(text: str) -> list[Line]:
    """Parse evidence. The last line may be torn: its writer was killed."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) == 4:
            found.append(Line(words[0], words[1], int(words[2]), float(words[3])))
    return found


def checksum(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def check(
    evidence: Iterable[Line],
    executions: Mapping[str, str],
    acknowledged: Mapping[str, str],
    *,
    at_most_once: frozenset[str] = frozenset(),
    killed: frozenset[tuple[str, int]] = frozenset(),
    due: Mapping[str, float] | None = None,
) -> Offences:
    """Compare evidence with executions and acknowledged writes, both as content by id.

    `killed` attempts leave no end: their processes were killed with their worker. `due` is in boot time, as lines are.
    """
    offences = Offences()
    starts = [line for line in evidence if line.what == "start"]
    ends = {(line.execution, line.attempt): line.at_s for line in evidence if line.what == "end"}
    counts = Counter((line.execution, line.attempt) for line in starts)
    offences.doubled = sorted({execution for (execution, _), n in counts.items() if n > 1})
    offences.orphans = sorted({line.execution for line in starts} - executions.keys())
    due = due or {}
    offences.early = sorted({line.execution for line in starts if line.at_s < due.get(line.execution, 0.0) - TICK_S})
    by_execution: dict[str, list[Line]] = {}
    for line in sorted(starts, key=lambda line: (line.at_s, line.attempt)):
        by_execution.setdefault(line.execution, []).append(line)
    for execution, attempts in by_execution.items():
        if execution in at_most_once and len(attempts) > 1:
            offences.repeated.append(execution)
        for before, after in pairwise(attempts):
            key = (before.execution, before.attempt)
            ended = ends.get(key, before.at_s if key in killed else float("inf"))
            if ended > after.at_s:
                offences.overlapping.append(execution)
    expected = {execution: checksum(content) for execution, content in acknowledged.items()}
    found = {execution: checksum(content) for execution, content in executions.items()}
    offences.lost = sorted(execution for execution, digest in expected.items() if found.get(execution) != digest)
    return offences
