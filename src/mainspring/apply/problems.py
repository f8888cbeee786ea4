"""Problems of the manifests of one request."""

from __future__ import annotations

from mainspring.domain.errors import Invalid, MainspringError, Problem
from mainspring.manifest import in_document

MAX_PROBLEMS = 100


class ProblemList:
    """Problems of all manifests, each with a pointer into the request."""

    def __init__(self) -> None:
        self.found: list[Problem] = []
        self.code = "invalid"

    def add(self, number: int, error: MainspringError) -> None:
        """Add the problems of one manifest, which point into the document."""
        self.code = error.code if not self.found else self.code if self.code == error.code else "invalid"
        for problem in error.problems or (Problem("", error.message),):
            pointer = "" if problem.pointer == "/" else problem.pointer
            self.found.append(Problem(f"/manifests/{number}{pointer}", problem.message, problem.hint))

    def add_definition(self, number: int, error: MainspringError) -> None:
        """Add problems that point into the definition."""
        problems = tuple(map(in_document, error.problems or (Problem("", error.message),)))
        self.add(number, Invalid(error.message, code=error.code, problems=problems))

    def check(self) -> None:
        if self.found:
            first, more = self.found[0], len(self.found) - 1
            message = first.message + (f" (and {more:,} more problem{'s'[: more > 1]})" if more else "")
            raise Invalid(message, code=self.code, problems=tuple(self.found[:MAX_PROBLEMS]))


def refusal(pointer: str, message: str, hint: str, code: str = "invalid") -> Invalid:
    return Invalid(message, code=code, problems=(Problem(pointer, message, hint),))
