"""Everything the audit may tell of: a kind of subject, and what was done to it."""

from __future__ import annotations

ACTIONS: tuple[str, ...] = (
    "job.edit", "job.pause", "job.resume", "job.delete", "job.force_complete", "job.skip", "job.need", "job.unneed",
    "execution.cancel",
    "run.cancel", "run.rerun", "run.event",
    "step.approve", "step.reject", "step.skip", "step.force_complete",
    "dead_letter.replay", "dead_letter.dismiss",
    "queue.change",
)  # fmt: skip

KINDS: tuple[str, ...] = tuple(dict.fromkeys(action.partition(".")[0] for action in ACTIONS))
