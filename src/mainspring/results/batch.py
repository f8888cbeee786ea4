"""Reports of ended attempts, and the batch that settles several of them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from mainspring import wire
from mainspring.domain.execution import is_step
from mainspring.domain.settlement import AttemptResult


@dataclass(frozen=True, slots=True)
class Report:
    """Ended attempts of one session, and output that must be stored before them."""

    session_id: UUID
    ended: Sequence[AttemptResult]
    output: Sequence[wire.Output] = ()


class ResultBatch:
    """Reports that are settled together, in key order so that two batches cannot deadlock."""

    def __init__(self, reports: Sequence[Report]) -> None:
        self.ended = sorted((e for r in reports for e in r.ended), key=lambda e: e.execution_id.int)
        if any(e.outcome != "succeeded" for e in self.ended):
            # A guardian and the rescue may report the end of the same attempt: the first report counts.
            first = {(e.execution_id, e.attempt, e.session_id): e for e in reversed(self.ended)}
            self.ended = list(first.values())[::-1]
        self.succeeded = [e for e in self.ended if e.outcome == "succeeded"]
        self.unsuccessful = [e for e in self.ended if e.outcome != "succeeded"]
        self.steps = [e for e in self.ended if is_step(e.execution_id)]
        self.output = [(report.session_id, chunk) for report in reports for chunk in report.output]
