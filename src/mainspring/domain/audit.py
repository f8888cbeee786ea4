"""The audit catalogue: subject types and the actions recorded for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ACTIONS: tuple[str, ...] = (
    "job.create", "job.edit", "job.rollback", "job.pause", "job.resume", "job.delete", "job.trigger",
    "job.force_complete", "job.skip", "job.need", "job.unneed",
    "workflow.create", "workflow.edit", "workflow.rollback", "workflow.pause", "workflow.resume", "workflow.delete",
    "workflow.force_complete", "workflow.skip", "workflow.need", "workflow.unneed",
    "execution.cancel", "execution.requeue", "execution.reject",
    "run.start", "run.cancel", "run.rerun", "run.event",
    "step.approve", "step.reject", "step.skip", "step.force_complete",
    "dead_letter.claim", "dead_letter.release", "dead_letter.edit", "dead_letter.replay", "dead_letter.dismiss",
    "backfill.create", "backfill.pause", "backfill.resume", "backfill.cancel",
    "calendar.write", "calendar.delete", "blackout.create", "blackout.delete",
    "queue.change", "worker.drain", "worker.resume", "reservation.create", "reservation.delete",
    "channel.create", "channel.edit", "channel.enable", "channel.delete", "rule.write", "rule.delete",
    "silence.create", "silence.delete",
    "secret.create", "secret.edit", "secret.rotate", "secret.delete", "secret.use", "secret.rotate_key",
    "secret.encrypt",
    "trigger.create", "trigger.edit", "trigger.pause", "trigger.resume", "trigger.rotate", "trigger.delete",
    "manifest.apply",
    "token.create", "token.rotate", "token.revoke", "role.write", "role.delete",
    "user.create", "user.edit", "user.delete",
    "tenant.create", "tenant.edit", "tenant.suspend", "tenant.resume", "tenant.delete",
    "browser_session.end", "browser_session.end_all",
)  # fmt: skip

KINDS: tuple[str, ...] = tuple(dict.fromkeys(action.partition(".")[0] for action in ACTIONS))


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The fields that differ, each with its old and new value."""
    names = sorted(before.keys() | after.keys())
    return {n: [before.get(n), after.get(n)] for n in names if before.get(n) != after.get(n)}
