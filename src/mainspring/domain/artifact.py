"""Artifacts: file names, and references from later executions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

import msgspec

from mainspring.domain.bounds import Count, Name
from mainspring.domain.errors import Problem
from mainspring.domain.template import param_names, unknown_names

MOST_NAME = 200
MOST_FILES = 100
"""Per execution."""
MOST_IN = 20


class ArtifactIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An artifact of an earlier execution that the worker downloads before the attempt.

    The source is exactly one of: the newest success of `job` with an artifact of this name; an `execution` (an id, or a
    template such as `{{params.source}}`); in a workflow, an earlier `step` of the run. `as` renames the file.
    """

    name: Name
    job: Name | None = None
    execution: Name | None = None
    step: Name | Count | None = None
    as_: Name | None = msgspec.field(default=None, name="as")

    @property
    def put_as(self) -> str:
        return self.as_ or self.name

    @property
    def source(self) -> str:
        """The source as text."""
        if self.job is not None:
            return f"the job {self.job}"
        return f"the execution {self.execution}" if self.execution is not None else "an earlier step"


def wanted_params(wanted: Sequence[ArtifactIn]) -> frozenset[str]:
    """The parameters that the sources refer to."""
    return frozenset(name for one in wanted if one.execution for name in param_names(one.execution))


def wanted_problems(wanted: Sequence[ArtifactIn], kind: str) -> Iterator[Problem]:
    if wanted and kind not in ("shell", "python", "container"):
        yield Problem("/artifacts_in", f"a {kind} task cannot use artifacts", "remove it")
    if len(wanted) > MOST_IN:
        yield Problem("/artifacts_in", f"at most {MOST_IN} artifacts are allowed", "pack them into one")
    names = [one.put_as for one in wanted]
    for place, one in enumerate(wanted):
        at = f"/artifacts_in/{place}"
        for field, name in (("name", one.name), ("as", one.put_as)):
            if (wrong := name_problem(name)) is not None:
                yield Problem(f"{at}/{field}", wrong, "a relative path such as report/2026.csv")
                break
        if any(name == one.put_as or name.startswith(f"{one.put_as}/") for name in names[:place] + names[place + 1 :]):
            yield Problem(at, f"two files would be called {one.put_as!r}", 'give one another name with "as"')
        if [one.job, one.execution, one.step].count(None) != 2:
            yield Problem(
                at,
                "a source is required: exactly one of job, execution and step",
                "keep one of job, execution and step",
            )
        elif one.execution is not None:
            yield from _execution_problems(f"{at}/execution", one.execution)


def _execution_problems(pointer: str, text: str) -> Iterator[Problem]:
    for name, hint in unknown_names(text):
        yield Problem(pointer, f"{{{{{name}}}}} is not known", hint)
    if "{{" not in text:
        try:
            UUID(text)
        except ValueError:
            yield Problem(pointer, f"{text!r} is not an id", "the id of an execution, or {{params.source}}")


def name_problem(name: str) -> str | None:
    """Return why a name is invalid, or None. Names are relative paths with `/` that stay inside their folder."""
    if not name or len(name.encode("utf-8", "surrogatepass")) > MOST_NAME:
        return f"a name has 1 to {MOST_NAME} bytes"
    if not name.isprintable() or "\\" in name:
        return f"{name!r} has characters that names can't have: control characters or a backslash"
    if name.startswith("/"):
        return f"{name!r} is an absolute path"
    if any(part in ("", ".", "..") for part in name.split("/")):
        return f"{name!r} has a part that is empty, '.' or '..'"
    return None
