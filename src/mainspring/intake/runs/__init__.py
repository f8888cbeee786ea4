"""Start, rerun and cancel runs of workflows; approve, skip and complete their steps; send them events.

Import the verbs from here: `from mainspring.intake import runs`, then `runs.start(transactions, ...)`.
"""

from __future__ import annotations

from mainspring.intake.runs.cancel import cancel, finish_cancel
from mainspring.intake.runs.events import send_event
from mainspring.intake.runs.rerun import rerun
from mainspring.intake.runs.start import refuse_due, start, start_due
from mainspring.intake.runs.step_rights import StepRights, step_rights
from mainspring.intake.runs.steps import advance_ended, decide, end_wait, force_complete, skip
from mainspring.intake.runs.transaction import RunTransactions

__all__ = [
    "RunTransactions",
    "StepRights",
    "advance_ended",
    "cancel",
    "decide",
    "end_wait",
    "finish_cancel",
    "force_complete",
    "refuse_due",
    "rerun",
    "send_event",
    "skip",
    "start",
    "start_due",
    "step_rights",
]
