"""The verdict on an attempt that did not succeed: retry, or final. Pure."""

from __future__ import annotations

import random

import msgspec

from mainspring.domain.execution import POISON_AFTER_LOST, POISON_AFTER_LOST_SPOT
from mainspring.domain.job import Definition
from mainspring.domain.retry import delay_s, is_retried
from mainspring.domain.settlement import AttemptResult, Final, LockedExecution, Retry


def verdict(
    execution: LockedExecution, ended: AttemptResult, definition: Definition, rng: random.Random
) -> Retry | Final:
    """Decide by the job's policies whether the execution gets another attempt."""
    if ended.outcome == "succeeded":
        return Final(ended, "succeeded", None)
    if execution.cancelling is not None or ended.outcome == "cancelled":
        return Final(ended, "cancelled", execution.cancelling or "cancelled by its worker")
    if ended.outcome == "preempted":
        if definition.delivery == "at_most_once":
            return Final(ended, "lost", "its worker stopped; at_most_once is never started twice")
        if execution.urgent is not None:
            ended = msgspec.structs.replace(ended, error=f"preempted by {execution.urgent}")
        return Retry(ended, 0.0, execution.failures, execution.lost)
    failures = execution.failures + 1
    if ended.outcome == "lost":
        return _after_loss(execution, ended, definition, failures)
    policy = definition.retries
    retried = ended.retry and is_retried(policy, outcome=ended.outcome, exit_code=ended.exit_code, error=ended.error)
    if not retried or failures > policy.max:
        return Final(ended, ended.outcome, None)
    wait_s = delay_s(policy, failures=failures, rng=rng, execution_id=execution.execution_id)
    return Retry(ended, wait_s, failures, 0)


def _after_loss(
    execution: LockedExecution, ended: AttemptResult, definition: Definition, failures: int
) -> Retry | Final:
    lost = execution.lost + 1
    if definition.delivery == "at_most_once":
        return Final(ended, "lost", "the worker was lost; at_most_once is never started twice")
    if ended.spot:
        if lost >= POISON_AFTER_LOST_SPOT:
            return Final(ended, "failed", f"poison: {lost} workers in a row were lost while running it")
        return Retry(ended, 0.0, execution.failures, lost)
    if lost >= POISON_AFTER_LOST:
        return Final(ended, "failed", f"poison: {lost} workers in a row were lost while running it")
    if "lost" not in definition.retries.on:
        return Final(ended, "lost", "the worker was lost, and retries.on does not include lost")
    if failures > definition.retries.max:
        return Final(ended, "lost", "the worker was lost and no retries are left")
    return Retry(ended, 0.0, failures, lost)
