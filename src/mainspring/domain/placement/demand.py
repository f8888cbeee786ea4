"""Demands of an execution on its worker: kind, function, labels, resources. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from mainspring.domain.placement.functions import FunctionSet
from mainspring.domain.placement.resources import COMMON, show_amount

ANY = "*"
"""Label value that matches any value of the worker."""
SPOT = "worker/spot"
"""Label of workers on machines that may be taken away at any time. Only jobs that tolerate it run there."""
PREFER = "prefer"


@dataclass(frozen=True, slots=True)
class Demand:
    """What an execution requires. Equal demands have equal keys, so each distinct demand is stored once."""

    kind: str = ""  # of the task; empty (any worker) in lines written by older versions
    labels: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, int] = field(default_factory=dict)
    exclusive: bool = False  # needs a worker without other executions
    function: str = ""  # of a Python task; empty (any worker) in lines written by older versions
    spot: str = ""  # tolerate: may run on spot workers; prefer: does so while one of them is free

    @property
    def plain(self) -> bool:
        """Whether any free slot of a worker with the kind and labels is as good as another."""
        return not self.resources and not self.exclusive and self.spot != PREFER

    @property
    def scarce(self) -> bool:
        """Whether it requires a scarce resource such as a GPU."""
        return any(name not in COMMON for name in self.resources)

    @property
    def key(self) -> str:
        # In the field of the kind: an api process of an older version finds no worker for it, and leaves it to others.
        parts: dict[str, object] = {"kind": f"{self.kind} {self.function}" if self.function else self.kind}
        labels = {**self.labels, SPOT: self.spot} if self.spot else self.labels  # a label that no older version finds
        if labels:
            parts["labels"] = dict(sorted(labels.items()))
        if self.resources:
            parts["resources"] = dict(sorted(self.resources.items()))
        if self.exclusive:
            parts["exclusive"] = True
        return msgspec.json.encode(parts).decode()


@lru_cache(10_000)
def read_demand(key: str) -> Demand:
    fields = msgspec.json.decode(key)
    kind, _, function = fields.pop("kind", "").partition(" ")
    spot = fields.get("labels", {}).pop(SPOT, "")
    return Demand(kind, **fields, function=function, spot=spot)


def can_run(
    demand: Demand, kinds: Collection[str], labels: Mapping[str, str], functions: FunctionSet | None = None
) -> bool:
    """Whether a worker has the kind, the function and the labels, regardless of its load.

    A spot worker takes only what tolerates it. `functions` is None for a worker of an older version, which does not
    state them.
    """
    if demand.kind and demand.kind not in kinds:
        return False
    if SPOT in labels and not demand.spot:
        return False
    if demand.function and functions is not None and not functions.has(demand.function):
        return False
    return all(name in labels and value in (ANY, labels[name]) for name, value in demand.labels.items())


def has_amounts(asked: Mapping[str, int], there: Mapping[str, int]) -> bool:
    return all(there.get(name, 0) >= amount for name, amount in asked.items())


def lacks(
    demand: Demand,
    kinds: Collection[str],
    labels: Mapping[str, str],
    capacity: Mapping[str, int],
    functions: FunctionSet | None = None,
) -> list[str]:
    """What a worker lacks even when idle, as texts; empty if it could run this."""
    found = []
    if demand.kind and demand.kind not in kinds:
        found.append(f"the executor {demand.kind!r}")
    elif demand.function and functions is not None and not functions.has(demand.function):
        found.append(f"the function {demand.function!r}")
    if SPOT in labels and not demand.spot:
        found.append("a machine that stays (it is a spot worker, and the job does not say spot: tolerate)")
    for name, value in demand.labels.items():
        if name not in labels or value not in (ANY, labels[name]):
            has = f"it has {name}={labels[name]}" if name in labels else "it has no such label"
            found.append(f"the label {name}={value} ({has})")
    for name, amount in demand.resources.items():
        if (there := capacity.get(name, 0)) < amount:
            found.append(f"{name} {show_amount(name, amount)} (it has {show_amount(name, there)})")
    return found
