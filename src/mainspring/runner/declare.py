"""Loads modules in a process of their own and writes the jobs that they declare, and the functions that they have."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import msgspec

from mainspring import runner_protocol as protocol
from mainspring.codec import problem_of
from mainspring.domain.errors import Invalid, Problem
from mainspring.domain.job import JobSpec, check
from mainspring.runner.modules import load
from mainspring.runner.stated_functions import stated_functions
from mainspring.runner_protocol import BadModule
from mainspring.sdk.job import Declaration, declared


def declare(targets: list[str]) -> NoReturn:
    """Write the messages to stdout; what modules print while they load goes to stderr."""
    out = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    messages: list[protocol.RunnerMessage] = []
    error = None
    try:
        modules = load(targets)
        messages = [_checked(declaration) for declaration, _ in declared.values()]
        messages.append(protocol.StatedFunctions(*stated_functions(modules)))
    except BadModule as bad:
        error, messages = bad.message, []
    with open(out, "wb") as file:
        file.writelines(protocol.encode(message) + b"\n" for message in [*messages, protocol.Loaded(error)])
    sys.stderr.flush()
    os._exit(0)  # without waiting for threads that a module has started


def _checked(declaration: Declaration) -> protocol.DeclaredJob:
    """Check a job as the server would, so that an error is reported with its line."""
    location = f"{declaration.file}:{declaration.line}"
    prefix = f"{location}: the job {declaration.name!r}"
    try:
        spec = msgspec.convert(declaration.spec, JobSpec)
        check(spec)
    except msgspec.ValidationError as error:
        raise BadModule(f"{prefix}: {_describe(problem_of(str(error), JobSpec))}") from None
    except Invalid as error:
        raise BadModule(f"{prefix}: {_describe(error.problems[0])}") from None
    except TypeError as error:
        raise BadModule(f"{prefix}: {error}") from None
    return protocol.DeclaredJob(msgspec.Raw(protocol.encode(spec)), location)


def _describe(problem: Problem) -> str:
    return f"{problem.pointer}: {problem.message}" + (f"; {problem.hint}" if problem.hint else "")
