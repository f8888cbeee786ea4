"""Loads the modules in a process that is thrown away, and tells which jobs they declare."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import msgspec

from mainspring import calls
from mainspring.codec import problem_of
from mainspring.domain.errors import Invalid
from mainspring.domain.job import JobSpec, check
from mainspring.runner.modules import BadModule, load
from mainspring.sdk.job import Declaration, declared


def declare(targets: list[str]) -> NoReturn:
    """Writes the words to stdout; what modules print while they load goes to stderr instead."""
    out = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    words: list[calls.Word] = []
    error = None
    try:
        load(targets)
        words = [_declares(declaration) for declaration, _ in declared.values()]
    except BadModule as bad:
        error, words = str(bad), []
    with open(out, "wb") as file:
        file.writelines(calls.encode(word) + b"\n" for word in [*words, calls.Hello(error)])
    sys.stderr.flush()
    os._exit(0)  # threads that a module has started do not keep us


def _declares(declaration: Declaration) -> calls.Declares:
    """Checked as the server will check it, so that a mistake is told with its line."""
    place = f"{declaration.file}:{declaration.line}"
    try:
        spec = msgspec.convert(declaration.spec, JobSpec)
        check(spec)
    except msgspec.ValidationError as error:
        problem = problem_of(str(error), JobSpec)
        hint = f"; {problem.hint}" if problem.hint else ""
        raise BadModule(f"{place}: the job {declaration.name!r}: {problem.pointer}: {problem.message}{hint}") from None
    except Invalid as error:
        problem = error.problems[0]
        raise BadModule(
            f"{place}: the job {declaration.name!r}: {problem.pointer}: {problem.message}; {problem.hint}"
        ) from None
    except TypeError as error:
        raise BadModule(f"{place}: the job {declaration.name!r}: {error}") from None
    return calls.Declares(msgspec.Raw(calls.encode(spec)), place)
