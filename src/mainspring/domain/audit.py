"""The audit catalogue: subject types and the actions recorded for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mainspring.domain.masking import MASK
from mainspring.domain.plaintext import looks_secret

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
    "duration.request", "duration.approve", "duration.refuse", "duration.revoke", "duration.withdraw",
    "channel.create", "channel.edit", "channel.enable", "channel.delete", "rule.write", "rule.delete",
    "silence.create", "silence.delete",
    "secret.create", "secret.edit", "secret.rotate", "secret.delete", "secret.use", "secret.rotate_key",
    "secret.encrypt",
    "trigger.create", "trigger.edit", "trigger.pause", "trigger.resume", "trigger.rotate", "trigger.delete",
    "manifest.apply",
    "token.create", "token.rotate", "token.revoke", "role.write", "role.delete",
    "user.create", "user.edit", "user.delete", "user.block", "user.unblock",
    "tenant.create", "tenant.edit", "tenant.suspend", "tenant.resume", "tenant.delete",
    "browser_session.begin", "browser_session.end", "browser_session.end_all",
    "login.fail", "request.deny",
)  # fmt: skip

KINDS: tuple[str, ...] = tuple(dict.fromkeys(action.partition(".")[0] for action in ACTIONS))


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The fields that differ, each with its old and new value."""
    names = sorted(before.keys() | after.keys())
    return {n: [before.get(n), after.get(n)] for n in names if before.get(n) != after.get(n)}


MAX_RECORDED_CHARS = 2_000
"""A value of a definition that is longer is recorded by its length only; the versions of the job have it."""


def recorded_changes(before: Any, after: Any) -> dict[str, Any]:
    """The fields of a definition that differ, with their old and new values; what looks like a secret is masked."""
    fields = [name for name in after.__struct_fields__ if getattr(before, name) != getattr(after, name)]
    values = {name: [recorded(name, getattr(before, name)), recorded(name, getattr(after, name))] for name in fields}
    return {"fields": fields, "changes": values}


def recorded(name: str, value: Any) -> Any:
    """A value as the audit log has it: bounded, without what looks like a secret."""
    plain = _masked(name, msgspec.to_builtins(value))
    size = len(msgspec.json.encode(plain))
    return plain if size <= MAX_RECORDED_CHARS else f"({size:,} characters)"


def _masked(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _masked(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(name, item) for item in value]
    return MASK if looks_secret(name, value, header=True) else value
