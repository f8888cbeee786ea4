"""Retry policy: which outcomes are retried, and after which delay."""

from __future__ import annotations

import random
import re
from typing import Annotated, Literal, get_args
from uuid import UUID

import msgspec

from mainspring.domain.bounds import Duration, Name
from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import Problem
from mainspring.domain.execution import Outcome

Jitter = Literal["full", "equal", "scaled", "decorrelated", "none"]
Retried = Literal["failed", "timed_out", "lost"]
"""Outcomes that a policy may retry."""

ExitCodes = Annotated[tuple[Annotated[int, msgspec.Meta(ge=-64, le=255)], ...], msgspec.Meta(max_length=100)]
ErrorTypes = Annotated[tuple[Name, ...], msgspec.Meta(max_length=100)]

_TYPE_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\Z")
_HEAD = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:: |\Z)")
_DECORRELATED_GROWTH = 3.0


class RetryPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """At most `max` retries with delay `base * factor**n`, limited to `cap` and spread by `jitter`.

    `on` lists the outcomes to retry. For `failed`, `only_exit_codes` and `only_errors` limit retries to transient
    failures; `never_exit_codes` and `never_errors` exclude permanent ones. An error type is the name at the start of
    the error text: `TimeoutError`, or `app.errors.Busy` for the type of one module.
    """

    max: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 3
    base: Duration = "60s"
    cap: Duration = "1h"
    factor: Annotated[float, msgspec.Meta(ge=1, le=100)] = 2.0
    jitter: Jitter = "full"
    on: Annotated[tuple[Retried, ...], msgspec.Meta(max_length=10)] = get_args(Retried)
    only_exit_codes: ExitCodes | None = None
    never_exit_codes: ExitCodes = ()
    only_errors: ErrorTypes | None = None
    never_errors: ErrorTypes = ()


def delay_s(policy: RetryPolicy, *, failures: int, rng: random.Random, execution_id: UUID | None = None) -> float:
    """The delay in seconds after the `failures`-th failure (1 is the first)."""
    base, cap = parse_duration(policy.base), parse_duration(policy.cap)
    try:
        plain = min(cap, base * policy.factor ** (failures - 1))
    except OverflowError:
        plain = cap if base else 0.0
    match policy.jitter:
        case "full":
            return rng.uniform(0, plain)
        case "equal":
            return min(cap, plain * rng.uniform(0.75, 1.25))
        case "scaled":
            return min(cap, plain * rng.uniform(0.8, 1.2))
        case "decorrelated":
            return _decorrelated_s(
                base, cap, failures, rng if execution_id is None else random.Random(execution_id.int)
            )
        case "none":
            return plain


def _decorrelated_s(base: float, cap: float, failures: int, rng: random.Random) -> float:
    """Draw each delay between `base` and three times the previous one.

    Previous delays are not stored: the random generator is seeded with the execution id, so they can be recomputed.
    """
    delay = min(base, cap)
    for _ in range(failures):
        delay = min(cap, rng.uniform(base, max(base, delay * _DECORRELATED_GROWTH)))
    return delay


def is_retried(policy: RetryPolicy, *, outcome: Outcome, exit_code: int | None, error: str | None) -> bool:
    """Whether the policy retries this outcome, regardless of how many retries are left."""
    if outcome not in policy.on:
        return False
    if outcome != "failed":
        return True
    if exit_code in policy.never_exit_codes or _is_one_of(error, policy.never_errors):
        return False
    wanted = policy.only_exit_codes is None and policy.only_errors is None
    wanted = wanted or (policy.only_exit_codes is not None and exit_code in policy.only_exit_codes)
    return wanted or (policy.only_errors is not None and _is_one_of(error, policy.only_errors))


def error_type(error: str | None) -> str | None:
    """The error type at the start of an error text: `ValueError: no` is a ValueError."""
    head = _HEAD.match((error or "").partition("\n")[0].strip())
    return None if head is None else head[1]


def _is_one_of(error: str | None, types: tuple[str, ...]) -> bool:
    found = error_type(error) if types else None
    return found is not None and (found in types or found.rpartition(".")[2] in types)


def policy_problems(policy: RetryPolicy) -> list[Problem]:
    """Return problems that the types alone do not catch."""
    found = [
        Problem(f"/retries/{field}/{place}", f"{name!r} is not the name of an error type", "such as TimeoutError")
        for field, names in (("only_errors", policy.only_errors or ()), ("never_errors", policy.never_errors))
        for place, name in enumerate(names)
        if not _TYPE_NAME.match(name)
    ]
    if not policy.on and policy.max > 0:
        found.append(Problem("/retries/on", "no outcome would be retried", 'name outcomes, or say "max": 0'))
    for only, never, what in (
        (policy.only_exit_codes, policy.never_exit_codes, "exit_codes"),
        (policy.only_errors, policy.never_errors, "errors"),
    ):
        if only is not None and not only:
            found.append(Problem(f"/retries/only_{what}", "an empty list would match nothing", "leave it out"))
        if only and never:
            found.append(
                Problem(
                    f"/retries/never_{what}", f"only_{what} already excludes everything else", "give one of the two"
                )
            )
    return found


def describe_retries(policy: RetryPolicy) -> str:
    """A short text for the policy."""
    if not policy.max:
        return "none"
    words = [f"{policy.max}, from {policy.base} to {policy.cap}"]
    if policy.jitter != "full":
        words.append("no jitter" if policy.jitter == "none" else f"{policy.jitter} jitter")
    if set(policy.on) != set(get_args(Retried)):
        words.append(f"only if {' or '.join(policy.on)}")
    for what, values in (
        ("only exit code", policy.only_exit_codes),
        ("never exit code", policy.never_exit_codes),
        ("only", policy.only_errors),
        ("never", policy.never_errors),
    ):
        if values:
            words.append(f"{what} {', '.join(map(str, values))}")
    return "; ".join(words)
