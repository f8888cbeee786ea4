"""The least isolation that an operator demands of programs and functions, in a queue or a tenant. Pure.

Authors of jobs can only add to it: a weaker sandbox is raised when an attempt is assigned, and again by a worker with a
minimum of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import msgspec

from mainspring.domain.placement.demand import ANY, Demand
from mainspring.domain.sandbox import BWRAP, RLIMITS, Sandbox

MinIsolation = Literal["none", "process", "bwrap", "container"]
LEVELS: tuple[MinIsolation, ...] = ("none", "process", "bwrap", "container")
CONFINED_KINDS = ("shell", "python")
"""Tasks that run code of authors on the worker itself. `http` and plug-ins run code of the operator."""
CONTAINER = "sandbox/container"
"""A label that no worker has: a program can't be raised to a container."""


def strongest(*levels: MinIsolation) -> MinIsolation:
    return max(levels, key=LEVELS.index)


def demand_with(demand: Demand, minimum: MinIsolation) -> Demand:
    """What an execution demands of its worker in a queue with this minimum."""
    if minimum == "none" or demand.kind not in (*CONFINED_KINDS, ""):
        return demand
    added = {"process": {RLIMITS: ANY}, "bwrap": {RLIMITS: ANY, BWRAP: ANY}, "container": {CONTAINER: ANY}}[minimum]
    return replace(demand, labels=added | dict(demand.labels))


def raised(sandbox: Sandbox | None, kind: str, minimum: MinIsolation) -> Sandbox | None:
    """The sandbox of an attempt, at least as strong as the minimum; a job without need keeps its own."""
    if minimum == "none" or kind not in CONFINED_KINDS:
        return sandbox
    sandbox = sandbox or Sandbox()
    if minimum == "process" or sandbox.isolation == "bwrap":
        return sandbox
    return msgspec.structs.replace(sandbox, isolation="bwrap")


def can_reach(kind: str, minimum: MinIsolation) -> bool:
    """Whether a task of this kind can have the minimum."""
    return minimum != "container" or kind not in CONFINED_KINDS
