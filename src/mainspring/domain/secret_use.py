"""The secrets that a job uses: where references may stand, and where they may not. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from mainspring.domain.errors import Problem
from mainspring.domain.params import Param
from mainspring.domain.plugin import POD, PluginTask
from mainspring.domain.secret import MAX_REFERENCES, NAME, references, whole_reference
from mainspring.domain.task import HttpTask, PythonTask
from mainspring.domain.template import Path, strings

Place = tuple[str | Path, str]
_VISIBLE_IN = {PluginTask: "the specification of a pod"}


def places(task: Any) -> Iterator[Place]:
    """Yield the texts of a task that may refer to secrets, with their JSON pointers."""
    fields: tuple[tuple[str, Any], ...] = ()
    if isinstance(task, HttpTask):
        fields = (("/task/headers", task.headers), ("/task/body", task.body))
    elif isinstance(task, PythonTask):
        fields = (("/task/args", task.args),)
    elif isinstance(task, PluginTask):
        fields = (("/task/settings", task.settings),)
    elif (env := getattr(task, "env", None)) is not None:
        fields = (("/task/env", env),)
    for pointer, value in fields:
        if value and b"secret:" in msgspec.json.encode(value):
            yield from strings(value, pointer)


def _public_places(task: Any) -> Iterator[Place]:
    """Yield the texts that other users of a machine, a cluster or a log can see."""
    if isinstance(task, PluginTask) and task.type == POD:
        yield from strings({name: value for name, value in task.settings.items() if name != "env"}, "/task/settings")
    if isinstance(task, HttpTask):
        yield "/task/url", task.url
    for field in ("argv", "command", "args"):
        words = getattr(task, field, ())
        if isinstance(words, tuple):
            yield from ((f"/task/{field}/{place}", word) for place, word in enumerate(words))


def reference_problems(task: Any, params: Mapping[str, Param]) -> list[Problem]:
    """Return references that are misspelled, or stand where their value would be visible."""
    found = [_bad_name(pointer, name) for pointer, name in used(task, params) if not NAME.match(name)]
    secret = {f"params.{name}" for name, param in params.items() if param.secret}
    for pointer, text in _public_places(task):
        if references(text) or any("{{" + name in text.replace(" ", "") for name in secret):
            where = "a URL" if isinstance(task, HttpTask) else _VISIBLE_IN.get(type(task), "a command line")
            hint = "use a header or the body" if isinstance(task, HttpTask) else "use env"
            found.append(Problem(str(pointer), f"a secret in {where} is visible to others", hint))
    if len({name for _, name in used(task, params)}) > MAX_REFERENCES:
        found.append(Problem("/task", f"it uses more than {MAX_REFERENCES} secrets", "keep related values together"))
    return found


def used(task: Any, params: Mapping[str, Param]) -> list[tuple[str, str]]:
    """Return every reference of a task and of the defaults of its parameters, with its JSON pointer."""
    found = [(str(pointer), name) for pointer, text in places(task) for name in references(text)]
    for name, param in params.items():
        if param.secret and isinstance(param.default, str) and (secret := whole_reference(param.default)) is not None:
            found.append((f"/params/{name}/default", secret))
    return found


def uses_secrets(task: Any, params: Mapping[str, Param]) -> bool:
    """Whether attempts need the values of secrets before they start."""
    return any(param.secret for param in params.values()) or any(references(text) for _, text in places(task))


def wanted(task: Any, params: Mapping[str, Param], given: Mapping[str, Any]) -> list[str]:
    """Return the secrets that one execution needs. Parameters refer to secrets only where the job declares it."""
    names = [name for _, text in places(task) for name in references(text)]
    for name, param in params.items():
        value = given.get(name, param.default)
        if param.secret and isinstance(value, str) and (secret := whole_reference(value)) is not None:
            names.append(secret)
    return list(dict.fromkeys(names))


def called_hosts(task: Any) -> list[str] | None:
    """Return the hosts that a task calls; None if nothing holds it to a host."""
    if not isinstance(task, HttpTask):
        return None
    scheme, separator, rest = task.url.partition("://")
    if not separator or "{{" in scheme or "{{" in rest.partition("/")[0]:
        return None
    host = urlsplit(task.url).hostname
    return None if host is None else [host]


def _bad_name(pointer: str, name: str) -> Problem:
    return Problem(pointer, f"{name[:100]!r} is not the name of a secret", "secret://name, or {{secret:name}}")
