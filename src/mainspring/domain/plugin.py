"""Plug-in tasks: kinds added by other packages, validated with the schema that workers report."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from mainspring.domain.bounds import Name, Values
from mainspring.domain.errors import Problem
from mainspring.domain.template import Path, template_problems, templates

TYPE = re.compile(r"[a-z][a-z0-9_-]{0,62}\Z")
OWN_KINDS = frozenset(("shell", "http", "python", "container", "noop", "plugin"))

POD = "pod"
"""The plug-in that comes with Mainspring, for workers with a Kubernetes cluster."""


class PluginTask(msgspec.Struct, frozen=True, tag="plugin", tag_field="kind", forbid_unknown_fields=True):
    """Passes `settings` to the executor of a plug-in."""

    type: Name
    settings: Values = {}


def plugin_problems(task: PluginTask) -> list[Problem]:
    """Return problems that can be found without a schema."""
    found: list[Problem] = []
    if not TYPE.match(task.type):
        found.append(Problem("/task/type", f"{task.type!r} is not a type", "lower case letters, digits, '_', '-'"))
    elif task.type in OWN_KINDS:
        found.append(Problem("/task/type", f"{task.type!r} is not a plug-in", f'say "kind": "{task.type}"'))
    found.extend(template_problems(plugin_strings(task)))
    return found


def plugin_strings(task: PluginTask) -> Iterator[tuple[str | Path, str]]:
    """The strings that may contain templates, with their JSON pointers."""
    yield from templates(task.settings, "/task/settings")
