"""Container tasks: image, command and resource limits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from mainspring.domain.bounds import Amount, Line, Name, Size, Text, Texts
from mainspring.domain.errors import Problem
from mainspring.domain.placement.resources import parse_amount
from mainspring.domain.template import Path, strings, template_problems

Pull = Literal["missing", "always", "never"]

IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}\Z")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?\Z")
LEAST_MEMORY = 6 * 1024 * 1024
"""Container engines refuse less."""


class ContainerTask(msgspec.Struct, frozen=True, tag="container", tag_field="kind", forbid_unknown_fields=True):
    """Runs an image. `command` replaces the entry point, `args` the arguments.

    The container has no network unless `network` is true. `memory` and `cpu` are hard limits that default to the job's
    `resources`. `pull` decides when the image is fetched, if the worker allows pulling.
    """

    image: Line
    command: Annotated[tuple[Text, ...], msgspec.Meta(max_length=1000)] = ()
    args: Annotated[tuple[Text, ...], msgspec.Meta(max_length=1000)] = ()
    env: Texts = {}
    memory: Size | None = None
    cpu: Amount | None = None
    pids: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 512
    network: bool = False
    read_only: bool = False
    user: Name | None = None
    workdir: Line | None = None
    pull: Pull = "missing"


def container_strings(task: ContainerTask) -> Iterator[tuple[str | Path, str]]:
    """The strings that may contain templates, with their JSON pointers."""
    for field in ("command", "args"):
        for place, word in enumerate(getattr(task, field)):
            yield f"/task/{field}/{place}", word
    yield from strings(task.env, "/task/env")


def container_problems(task: ContainerTask) -> list[Problem]:
    """Return problems that the types alone do not catch."""
    found: list[Problem] = []
    if not IMAGE.match(task.image):
        found.append(
            Problem("/task/image", f"{task.image!r} is not an image", "such as busybox:1.36 or ghcr.io/me/etl:3")
        )
    found.extend(_amount_problems(task))
    for pointer, text in container_strings(task):
        if "\0" in text:
            found.append(Problem(str(pointer), "NUL characters are not allowed", "remove it"))
    found.extend(template_problems(container_strings(task)))
    for name in task.env:
        if not ENV_NAME.match(name) or name.startswith("MAINSPRING_"):
            hint = "letters, digits and '_'; names that begin with MAINSPRING_ are reserved"
            found.append(Problem("/task/env", f"{name!r} can't be set", hint))
    if task.user is not None and not USER.match(task.user):
        found.append(Problem("/task/user", f"{task.user!r} is not a user", "such as 1000, 1000:1000 or daemon"))
    if task.workdir is not None and (not task.workdir.startswith("/") or "\0" in task.workdir):
        found.append(Problem("/task/workdir", f"{task.workdir!r} is not an absolute path", "such as /srv"))
    return found


def _amount_problems(task: ContainerTask) -> Iterator[Problem]:
    for name, value, hint in (("memory", task.memory, "such as 512Mi"), ("cpu", task.cpu, "such as 0.5")):
        if value is None:
            continue
        try:
            amount = parse_amount(name, value)
        except ValueError as error:
            yield Problem(f"/task/{name}", str(error), hint)
            continue
        if amount < (LEAST_MEMORY if name == "memory" else 10):
            yield Problem(f"/task/{name}", f"{value} is too little", f"{hint}; at least 6Mi, and 0.01 cores")
