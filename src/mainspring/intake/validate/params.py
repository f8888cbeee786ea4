"""Check the params of a submission, so that the caller gets the error instead of the attempt."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from mainspring.domain.errors import Invalid
from mainspring.domain.job import Definition, JobSpec, needed_params
from mainspring.domain.params import Param, given_problems
from mainspring.domain.plaintext import given_plaintext
from mainspring.domain.task import PythonTask
from mainspring.store.definitions import Definitions, Version

MAX_CACHED = 20_000


@dataclass(frozen=True, slots=True)
class ParamRules:
    """The params that executions of one job version must and may have."""

    declared: Mapping[str, Param]
    needed: frozenset[str]
    optional: frozenset[str]
    allow_plaintext: frozenset[str] = frozenset()
    secret: frozenset[str] = frozenset()

    @classmethod
    def of(cls, job: JobSpec | Definition) -> ParamRules | None:
        """None: the job declares none and its task uses none, so anything is allowed."""
        needed = needed_params(job.task)
        is_function = isinstance(job.task, PythonTask)
        if not job.params and not needed and not is_function:
            return None
        optional = frozenset(job.task.args) if isinstance(job.task, PythonTask) else frozenset[str]()
        secret = frozenset(name for name, param in job.params.items() if param.secret)
        return cls(job.params, needed, optional, frozenset(job.allow_plaintext), secret)

    def check(self, given: dict[str, Any] | None) -> None:
        """Refuse missing, unknown and wrongly typed params, with all problems at once."""
        problems = given_problems(self.declared, self.needed, given or {}, self.optional)
        if given:
            problems += given_plaintext(given, self.allow_plaintext, self.secret)
        if problems:
            raise Invalid(problems[0].message, problems=tuple(problems))


def check_params(job: JobSpec | Definition, given: dict[str, Any] | None) -> None:
    """Refuse missing, unknown and wrongly typed params of one execution."""
    if (rules := ParamRules.of(job)) is not None:
        rules.check(given)


class JobsWithParams:
    """The rules for params by job version, cached; a version never changes."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._known: dict[Version, ParamRules | None] = {}

    async def of(self, versions: Collection[Version]) -> dict[Version, ParamRules]:
        """The rules of the versions that have any."""
        if missing := {version for version in versions if version not in self._known}:
            found = await self._definitions.get(missing)
            if len(self._known) + len(found) > MAX_CACHED:
                self._known.clear()
            self._known |= {version: ParamRules.of(definition) for version, definition in found.items()}
        rules = {version: self._known.get(version) for version in versions}
        return {version: found for version, found in rules.items() if found is not None}
