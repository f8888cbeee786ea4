"""Commands that handle a failure, for pages and the command line to copy."""

from __future__ import annotations

import shlex
from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.codec import encode


def _text(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def commands_for(letter: wire.DeadLetter, run_id: UUID | None = None, step: str | None = None) -> list[tuple[str, str]]:
    """Return what can be done about a dead letter, each with its command. `run_id`, `step`: of the step that failed."""
    found: list[tuple[str, str]] = []
    if letter.trigger == "step":
        if run_id is not None:
            found.append(("Rerun from the failed step", f"mainspring runs rerun {run_id}"))
            name = shlex.quote(step) if step else "STEP"
            found.append(("Skip the step", f"mainspring runs skip {run_id} {name} --reason WHY"))
            found.append(("Complete the step", f"mainspring runs force-complete {run_id} {name} --reason WHY"))
    else:
        found.append(("Replay", f"mainspring dead-letters replay {letter.dead_letter_id}"))
        known = letter.new_params or letter.params
        given = known if isinstance(known, dict) and known else {"NAME": "VALUE"}
        options = " ".join(f"-p {shlex.quote(f'{name}={_text(value)}')}" for name, value in given.items())
        edited = f"mainspring dead-letters replay {letter.dead_letter_id} {options}"
        found.append(("Replay with edited parameters", edited))
        found.append(("Pause the job", f"mainspring jobs pause {shlex.quote(letter.job)} --reason WHY"))
        if letter.version > 1:
            back = f"mainspring jobs rollback {shlex.quote(letter.job)} {letter.version - 1}"
            found.append(("Roll back the job", back))
    found.append(("Dismiss", f"mainspring dead-letters dismiss {letter.dead_letter_id} --reason WHY"))
    return found
