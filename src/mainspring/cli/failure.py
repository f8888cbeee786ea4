"""Error messages and exit codes of commands."""

from __future__ import annotations

from mainspring.cli.output import echo
from mainspring.domain import errors
from mainspring.domain.execution import State
from mainspring.domain.schedule.budget import TooCostly
from mainspring.domain.schedule.schedule import ScheduleError, too_costly

EXIT_CODES = {
    0: "success",
    1: "any other error; from `doctor`, a failed check",
    2: "wrong usage: unknown command or option, missing argument",
    3: "not found",
    4: "not authenticated, or the token lacks the scope",
    5: "conflict with the current state",
    6: "invalid request",
    7: "server or database unreachable",
    8: "the wait timed out; the execution continues",
    10: "the execution failed, was lost or was skipped",
    11: "the execution was cancelled",
    12: "the execution timed out",
    20: "from `diff`: applying would change something",
    130: "interrupted with Ctrl-C",
}
WAIT_TIMED_OUT = 8
CHANGES_FOUND = 20

# The first class that matches counts.
_BY_CLASS: tuple[tuple[type[errors.MainspringError], int], ...] = (
    (errors.NotFound, 3),
    (errors.Unauthenticated, 4),
    (errors.Forbidden, 4),
    (errors.Conflict, 5),
    (errors.Invalid, 6),
    (errors.TooLarge, 6),
    (errors.Unavailable, 7),
)
_BY_STATE: dict[State, int] = {"succeeded": 0, "cancelled": 11, "timed_out": 12}
_HINTS = {
    "unreachable": "start a server with `mainspring dev`, or set --url or MAINSPRING_URL",
    "unauthenticated": "pass --token, set MAINSPRING_TOKEN, use the folder of `mainspring dev`, or `mainspring login`",
    "name_taken": "choose another name, or replace that job with --replace",
    "wait_timed_out": "the execution continues; wait again with: mainspring executions wait",
}


def report(error: Exception) -> int | None:
    """Print a Mainspring error and return its exit code; None for any other exception."""
    if isinstance(error, TooCostly):
        error = too_costly(error, "")
    if isinstance(error, ScheduleError):
        problem = errors.Problem(error.pointer, error.message, error.hint)
        error = errors.Invalid(error.message, code=error.code, problems=(problem,))
    if not isinstance(error, errors.MainspringError):
        return None
    echo("\n".join(lines(error)), err=True)
    return exit_code(error)


def lines(error: errors.MainspringError) -> list[str]:
    """The message, each problem with its pointer and hint, and what to do next."""
    text = [f"Error: {error.message}"]
    for problem in error.problems:
        if str(problem) in error.message:
            continue
        # A single problem usually is the message.
        said = "" if problem.message == error.message else f" {problem.message}"
        where = f"{problem.pointer}:" if said and problem.pointer else problem.pointer
        text += [f"  {where}{said}".rstrip()] if where or said else []
        text += [f"  → {problem.hint}"] if problem.hint else []
    text += [f"  → {_HINTS[error.code]}"] if error.code in _HINTS else []
    return text


def exit_code(error: errors.MainspringError) -> int:
    if error.code == "wait_timed_out":
        return WAIT_TIMED_OUT
    return next((code for kind, code in _BY_CLASS if isinstance(error, kind)), 1)


def state_code(state: State) -> int:
    """The exit code for an execution that ended; lost and skipped count as failed."""
    return _BY_STATE.get(state, 10)
