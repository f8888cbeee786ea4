"""The verdict on an attempt that did not succeed: again, or never again. Pure."""

from __future__ import annotations

import random

import msgspec

from mainspring.domain.execution import POISON_AFTER_LOST
from mainspring.domain.job import Definition
from mainspring.domain.retry import delay_s, is_retried
from mainspring.store.results import Again, Ended, Final, Held


def verdict(held: Held, ended: Ended, definition: Definition, rng: random.Random) -> Again | Final:
    """What follows from how an attempt ended, by the job's policies."""
    if ended.outcome == "succeeded":
        return Final(ended, "succeeded", None)
    if held.cancelling is not None or ended.outcome == "cancelled":
        return Final(ended, "cancelled", held.cancelling or "cancelled by its worker")
    if ended.outcome == "preempted":
        if definition.delivery == "at_most_once":
            return Final(ended, "lost", "its worker stopped; at_most_once is never started twice")
        if held.urgent is not None:
            ended = msgspec.structs.replace(ended, error=f"preempted by {held.urgent}")
        return Again(ended, 0.0, held.failures, held.lost)
    failures = held.failures + 1
    if ended.outcome == "lost":
        return _after_loss(held, ended, definition, failures)
    policy = definition.retries
    wanted = ended.retry and is_retried(policy, outcome=ended.outcome, exit_code=ended.exit_code, error=ended.error)
    if not wanted or failures > policy.max:
        return Final(ended, ended.outcome, None)
    wait_s = delay_s(policy, failures=failures, rng=rng, execution_id=held.execution_id)
    return Again(ended, wait_s, failures, 0)


def _after_loss(held: Held, ended: Ended, definition: Definition, failures: int) -> Again | Final:
    lost = held.lost + 1
    if definition.delivery == "at_most_once":
        return Final(ended, "lost", "the worker was lost; at_most_once is never started twice")
    if lost >= POISON_AFTER_LOST:
        return Final(ended, "failed", f"poison: {lost} workers in a row were lost while running it")
    if "lost" not in definition.retries.on:
        return Final(ended, "lost", "the worker was lost, and the job's retries leave that out")
    if failures > definition.retries.max:
        return Final(ended, "lost", "the worker was lost and no retries are left")
    return Again(ended, 0.0, failures, lost)
