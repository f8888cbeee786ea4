"""Does nothing, at once."""

from __future__ import annotations

from mainspring.worker.executors import Done, Work

_DONE = Done("succeeded", 0)


class NoopExecutor:
    async def execute(self, work: Work) -> Done:
        return _DONE
