"""Succeeds immediately, without doing anything."""

from __future__ import annotations

from collections.abc import Callable

from mainspring.worker.executors import Done, Work

_DONE = Done("succeeded", 0)


class NoopExecutor:
    """The `noop` kind."""

    async def execute(self, work: Work) -> Done:
        return _DONE

    def begin(self, work: Work, finish: Callable[[Work, Done], None]) -> None:
        finish(work, _DONE)
