"""The executor contract: what the worker calls, and what it provides.

Only `execute` is required. `begin`, `start`, `stop` and `schema` are optional.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from mainspring.worker.cleanup import CleanupRegistry
from mainspring.worker.environment import job_environment
from mainspring.worker.executors.work import Done, Work
from mainspring.worker.isolation.orphans import Orphans
from mainspring.worker.isolation.sandbox import SandboxSupport

if TYPE_CHECKING:
    from mainspring.worker.executors.pods.cluster import ClusterSettings


class Executor(Protocol):
    """Executes attempts of one kind. Must end soon after `work.stop` is set.

    A plug-in may have `schema`, the JSON Schema of its task's settings: jobs are checked against it when they are
    saved, and attempts before they begin.
    """

    async def execute(self, work: Work) -> Done: ...


@runtime_checkable
class DirectExecutor(Protocol):
    """An executor that needs no asyncio task per attempt.

    `begin` returns immediately; `finish` is called when the attempt has ended. An exception from `begin` fails the
    attempt, as with `execute`.
    """

    def begin(self, work: Work, finish: Callable[[Work, Done], None]) -> None: ...


@runtime_checkable
class LongLivedExecutor(Protocol):
    """An executor that keeps state between attempts: started and stopped with its worker."""

    async def start(self, host: Host) -> None: ...
    async def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Host:
    """The worker, as far as executors need to know it."""

    slots: int
    cleanup: CleanupRegistry
    modules: Sequence[str] = ()  # with functions for the `python` kind
    allow_net: Sequence[str] = ()  # networks that tasks may call besides the public ones
    engine: str | None = None  # socket of a container engine
    pull: bool = True  # whether images may be pulled
    sandbox_support: SandboxSupport = field(default_factory=SandboxSupport)
    orphans: Orphans | None = None  # None: not a process of its own, so processes that leave their group stay
    environment: Mapping[str, str] = field(default_factory=job_environment)  # what jobs inherit
    name: str = ""  # of the worker
    cluster: ClusterSettings | None = None  # where pods run; None: no pods
