"""The errors that users can receive, as one small tree.

    MainspringError
    ├── Invalid          the request itself is wrong; `problems` says where and what to do
    ├── NotFound         no such object for this tenant
    ├── Conflict         the object is not in the state that the request assumed
    ├── Unauthenticated  missing, invalid or expired credential
    ├── Forbidden        valid credential without the permission
    ├── TooLarge         body, page or batch over its limit
    └── Unavailable      the database is unreachable or full; nothing was written; retry
        └── TooMany      rate limit or quota exceeded; `retry_after_s` says when to retry

Each class has a stable `code`; an instance may narrow it (`bad_cron` is an Invalid). `str()` is the message with the
pointer, message and hint of each problem; `message` is the summary alone.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_PROBLEMS = 100
"""An error names at most so many problems."""
MAX_LISTED = 20
"""The `str()` of an error lists at most so many problems."""
MAX_MESSAGE_CHARS = 2000
MAX_POINTER_CHARS = 500


def clipped(text: str, most: int) -> str:
    """Shorten a text that may quote what a request contains: an answer must not be a multiple of the request."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a request: where (JSON pointer), what is wrong, what to do."""

    pointer: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.pointer}: " if self.pointer else ""
        return f"{place}{self.message}" + (f" ({self.hint})" if self.hint else "")


class MainspringError(Exception):
    code = "error"

    def __init__(self, message: str, *, code: str | None = None, problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message)
        self.message = clipped(message, MAX_MESSAGE_CHARS)
        self.code = code or type(self).code
        self.problems = problems[:MAX_PROBLEMS]

    def __str__(self) -> str:
        """The message and each problem, none of them twice."""
        message = super().__str__()
        listed = [text for text in map(str, self.problems[:MAX_LISTED]) if text not in message]
        if not listed:
            return message
        if len(self.problems) > MAX_LISTED:
            listed.append(f"and {len(self.problems) - MAX_LISTED} more")
        text = "; ".join(listed)
        return text if self.problems[0].message == message else f"{message}: {text}"


class Invalid(MainspringError):
    code = "invalid"


class NotFound(MainspringError):
    code = "not_found"


class Conflict(MainspringError):
    code = "conflict"


class Unauthenticated(MainspringError):
    code = "unauthenticated"


class Forbidden(MainspringError):
    code = "forbidden"


class TooLarge(MainspringError):
    code = "too_large"


class Unavailable(MainspringError):
    code = "unavailable"


class TooMany(Unavailable):
    code = "too_many"

    def __init__(
        self, message: str, *, retry_after_s: float = 1.0, code: str | None = None, problems: tuple[Problem, ...] = ()
    ) -> None:
        super().__init__(message, code=code, problems=problems)
        self.retry_after_s = retry_after_s


def invalid(pointer: str, message: str, *, hint: str = "", code: str = "invalid") -> Invalid:
    """Return an Invalid with exactly one problem."""
    return Invalid(message, code=code, problems=(Problem(pointer, message, hint),))
