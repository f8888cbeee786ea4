"""Check the params of a submission, so that the caller gets the error instead of the attempt."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mainspring.domain.errors import Invalid
from mainspring.domain.job import Definition, JobSpec, needed_params
from mainspring.domain.params import given_problems
from mainspring.domain.task import PythonTask
from mainspring.store.definitions import Definitions, Version

MAX_CACHED = 100_000


def check_params(job: JobSpec | Definition, given: dict[str, Any] | None) -> None:
    """Refuse missing, unknown and wrongly typed params, with all problems at once."""
    also = frozenset(job.task.args) if isinstance(job.task, PythonTask) else frozenset[str]()
    problems = given_problems(job.params, needed_params(job.task), given or {}, also)
    if problems:
        raise Invalid(problems[0].message, problems=tuple(problems))


class JobsWithParams:
    """Which job versions declare params. Caches those without, so that most batches need no check."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._plain: set[Version] = set()

    async def of(self, versions: Iterable[Version]) -> dict[Version, Definition]:
        """The definitions of the versions that declare params."""
        known = await self._definitions.get(set(versions) - self._plain)
        asking = {v: d for v, d in known.items() if d.params or needed_params(d.task)}
        if len(self._plain) > MAX_CACHED:
            self._plain.clear()
        self._plain.update(known.keys() - asking.keys())
        return asking
