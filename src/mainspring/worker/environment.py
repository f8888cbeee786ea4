"""The environment of jobs: a small part of the worker's, by an explicit list of names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from mainspring.domain.errors import Invalid

INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SHELL")
"""The variables that every job inherits."""
INTERPRETER = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
"""Those that functions inherit besides: without them, the interpreter may not find its own modules."""
NEVER = (
    "MAINSPRING_TOKEN",
    "MAINSPRING_DATABASE_URL",
    "MAINSPRING_SERVER_DATABASE_URL",
    "MAINSPRING_TENANT_DATABASE_URL",
    "MAINSPRING_SECRET_KEY",
)
"""Credentials of the installation, which no name or prefix passes on."""


def job_environment(names: Iterable[str] = (), *, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return what programs inherit: the default list, and `names`, of which `AWS_*` is a prefix and `*` everything."""
    passed = tuple(names)
    return {
        name: value
        for name, value in environ.items()
        if name not in NEVER and (name in INHERITED or any(_matches(name, each) for each in passed))
    }


def function_environment(environment: Mapping[str, str], *, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return what functions inherit: the environment of programs, and what the interpreter needs."""
    return {name: environ[name] for name in INTERPRETER if name in environ} | dict(environment)


def check_names(names: Iterable[str]) -> None:
    """Refuse names that are never passed on, or that can't be names."""
    for name in names:
        if name in NEVER:
            raise Invalid(f"--pass-env {name}: jobs never get the credentials of the installation")
        if not name or "=" in name or "*" in name[:-1]:
            raise Invalid(f"--pass-env {name!r}: write a name such as AWS_REGION, or a prefix such as AWS_*")


def _matches(name: str, given: str) -> bool:
    return name.startswith(given[:-1]) if given.endswith("*") else name == given
