"""Dead letters: executions that failed for good, open until a user replays or dismisses them.

open ──replay──▶ replaying ──succeeded──▶ resolved
 │ ▲                │ └─────failed──────▶ superseded (by the dead letter of its replay; resolved with it)
 │ └─ cancelled ────┘
 ├── replay after a canary ──▶ held ──canary succeeded──▶ replaying
 │ ▲                            └────canary failed────▶ open
 ├── its step was skipped or completed by a user ──▶ resolved (by the run that continues)
 └── dismiss ──▶ dismissed
"""

from __future__ import annotations

import re
from typing import Literal, get_args
from uuid import UUID

from mainspring.domain.duration import parse_duration
from mainspring.domain.execution import FAILED, State

_COUNT = re.compile(r"\d{1,9}+", re.ASCII)

DeadLetterState = Literal["open", "held", "replaying", "resolved", "superseded", "dismissed"]
DEAD_LETTER_STATES: tuple[DeadLetterState, ...] = get_args(DeadLetterState)


def leaves_dead_letter(state: State) -> bool:
    """Whether an execution that ends in this state leaves a dead letter."""
    return state in FAILED


def replay_key(dead_letter_id: UUID, replays: int) -> str:
    """Return the trigger key of the next replay: requested twice, it is the same execution."""
    return f"replay:{dead_letter_id}" if not replays else f"replay:{dead_letter_id}:{replays + 1}"


def parse_rate(text: str) -> float:
    """Return the seconds between two starts at a rate such as `10/1m` or `5/s`."""
    limit, slash, per = text.strip().partition("/")
    if not slash or not _COUNT.fullmatch(limit) or int(limit) < 1 or not per:
        raise ValueError(f"{text!r} is not a rate: write starts per time, such as 10/1m")
    seconds = parse_duration(per if per[0].isdigit() else f"1{per}")
    if seconds <= 0:
        raise ValueError(f"{text!r} is not a rate: the time must be longer than zero")
    return seconds / int(limit)
