"""The environment of jobs: a small part of the worker's, by an explicit list of names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from mainspring.domain.errors import Invalid

INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SHELL")
"""The variables that every job inherits."""
INTERPRETER = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
"""Those that functions inherit besides: without them, the interpreter may not find its own modules."""
SETTING = "MAINSPRING_"
"""Settings of the installation begin with it. URLs of databases and engines contain passwords, so none is passed on."""
NO_CREDENTIAL = ("MAINSPRING_URL",)
NEVER = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")
"""Credentials of the worker's collector, which no name or prefix passes on either."""


def job_environment(names: Iterable[str] = (), *, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return what programs inherit: the default list, and `names`, of which `AWS_*` is a prefix and `*` everything."""
    passed = tuple(names)
    return {
        name: value
        for name, value in environ.items()
        if not is_credential(name) and (name in INHERITED or any(_matches(name, each) for each in passed))
    }


def function_environment(environment: Mapping[str, str], *, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return what functions inherit: the environment of programs, and what the interpreter needs."""
    return {name: environ[name] for name in INTERPRETER if name in environ} | dict(environment)


def check_names(names: Iterable[str]) -> None:
    """Refuse names that are never passed on, or that can't be names."""
    for name in names:
        if is_credential(name):
            raise Invalid(f"--pass-env {name}: jobs never get the credentials of the installation")
        if not name or "=" in name or "*" in name[:-1]:
            raise Invalid(f"--pass-env {name!r}: write a name such as AWS_REGION, or a prefix such as AWS_*")


def is_credential(name: str) -> bool:
    """Whether a variable is, or may contain, a credential of the installation."""
    return name in NEVER or (name.startswith(SETTING) and name not in NO_CREDENTIAL)


def _matches(name: str, given: str) -> bool:
    return name.startswith(given[:-1]) if given.endswith("*") else name == given
