"""Claiming, settling, rescue and cancellation of one execution by two sessions.

Messages are sets: one that was sent stays, so it may arrive late, twice, or never. A dispatcher, a rescue and a
request to cancel read first and write later, so what they have read may be outdated. A worker's guardian stops its
child before the lease of its session ends; the worker may be dead, stopped or cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

SESSIONS = (0, 1)
NO_SESSION = -1
MOST_ATTEMPTS = 3
MAX_RETRIES = 2
FINAL = frozenset({"succeeded", "failed", "cancelled", "lost"})

GUARDS = frozenset(
    {
        "session",  # settling compares the session
        "attempt",  # settling compares the attempt
        "state",  # settling demands the state running, in the table of live executions
        "claim state",  # a claim demands the state queued
        "cancel state",  # cancelling a pending execution demands that it still is pending
        "guardian",  # children end before the lease of their session does
        "delivery",  # at_most_once is never queued again
        "commit first",  # running is committed before the worker learns of it
        "attempt grows",  # an attempt that is not charged keeps its number
        "session cleared",  # a retry clears the session
        "start once",  # a worker starts an attempt that is delivered twice only once
        "rescue",  # executions of ended sessions are settled
    }
)


class Report(NamedTuple):
    session: int
    attempt: int
    outcome: str


class Row(NamedTuple):
    """The execution: a row of `executions` while it is live, of `history` afterwards, where it keeps its session."""

    state: str = "queued"
    attempt: int = 0
    session: int = NO_SESSION
    failures: int = 0
    cancelling: bool = False


class State(NamedTuple):
    """`ended`: sessions without a lease; `stopped`: sessions whose guardian has ended their child; `children`: for each
    session the attempt that its child executes, or 0. `orphan`, `peeked`, `pending`: what a rescue, a dispatcher and a
    request to cancel have read."""

    row: Row = Row()
    ended: frozenset[int] = frozenset()
    stopped: frozenset[int] = frozenset()
    children: tuple[int, ...] = (0,) * len(SESSIONS)
    started: frozenset[tuple[int, int]] = frozenset()
    starts: int = 0
    claims: frozenset[tuple[int, int]] = frozenset()
    reports: frozenset[Report] = frozenset()
    orphan: Report | None = None
    peeked: bool = False
    pending: bool = False
    forged: bool = False
    dead_letters: int = 0


class Attempts:
    """The model; `guards` are the checks that the statements and the worker make."""

    def __init__(self, guards: frozenset[str] = GUARDS, *, delivery: str = "at_least_once") -> None:
        self.guards = guards
        self.delivery = delivery

    def initial(self) -> State:
        return State()

    # Steps ---------------------------------------------------------------------------------------------

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        yield from self._claims(state)
        for session in SESSIONS:
            yield from self._of_worker(state, session)
        for report in sorted(state.reports):
            yield f"settle {report.outcome} of {report.attempt} by {report.session}", self._settle(state, report)
        yield from self._rescue(state)
        yield from self._cancels(state)

    def _claims(self, state: State) -> Iterator[tuple[str, State]]:
        row = state.row
        if not state.peeked and row.state == "queued" and row.attempt < MOST_ATTEMPTS:
            yield "peek", state._replace(peeked=True)
        if not state.peeked:
            return
        if row.attempt == MOST_ATTEMPTS or (row.state != "queued" and "claim state" in self.guards):
            yield "claim nothing", state._replace(peeked=False)
            return
        for session in SESSIONS:
            if session in state.ended:
                continue
            claim = (session, row.attempt + 1)
            claimed = row._replace(state="running", session=session, attempt=row.attempt + 1)
            told = state._replace(peeked=False, claims=state.claims | {claim})
            yield f"claim {row.attempt + 1} for {session}", told._replace(row=claimed)
            if "commit first" not in self.guards:
                yield f"assign before the commit, for {session}", told

    def _of_worker(self, state: State, session: int) -> Iterator[tuple[str, State]]:
        child = state.children[session]
        if session not in state.stopped:
            for to, attempt in sorted(state.claims):
                again = (to, attempt) in state.started and "start once" in self.guards
                if to == session and not child and not again:
                    started = state._replace(started=state.started | {(to, attempt)}, starts=min(3, state.starts + 1))
                    yield f"start {attempt} on {session}", replace_child(started, session, attempt)
            yield f"guardian of {session}", replace_child(state, session, 0)._replace(stopped=state.stopped | {session})
        if child:
            for outcome in ("succeeded", "failed", "preempted"):
                report = Report(session, child, outcome)
                reported = replace_child(state, session, 0)._replace(reports=state.reports | {report})
                yield f"{outcome} {child} on {session}", reported
        if session not in state.ended and (session in state.stopped or "guardian" not in self.guards):
            yield f"lease of {session} ends", state._replace(ended=state.ended | {session})
        current = (state.row.session, state.row.state)
        if (
            not state.forged
            and session not in state.ended
            and current not in ((session, "running"), (NO_SESSION, "queued"))
        ):
            report = Report(session, state.row.attempt, "failed")
            yield (
                f"{session} reports what it does not hold",
                state._replace(forged=True, reports=state.reports | {report}),
            )

    def _rescue(self, state: State) -> Iterator[tuple[str, State]]:
        row = state.row
        if state.orphan is None and row.state == "running" and row.session in state.ended and "rescue" in self.guards:
            yield "find orphan", state._replace(orphan=Report(row.session, row.attempt, "lost"))
        if state.orphan is not None:
            yield f"rescue {state.orphan.attempt}", self._settle(state._replace(orphan=None), state.orphan)

    def _cancels(self, state: State) -> Iterator[tuple[str, State]]:
        row = state.row
        if row.state == "running" and not row.cancelling:
            yield "cancel running", state._replace(row=row._replace(cancelling=True))
        if not state.pending and row.state == "queued":
            yield "cancel: find pending", state._replace(pending=True)
        if state.pending:
            cancels = row.state == "queued" or "cancel state" not in self.guards
            after = row._replace(state="cancelled") if cancels else row
            yield "cancel pending", state._replace(pending=False, row=after)

    def _settle(self, state: State, report: Report) -> State:
        """One transaction; a report that is not current changes nothing."""
        row = state.row
        current = (
            (row.state == "running" or "state" not in self.guards)
            and (row.session == report.session or "session" not in self.guards)
            and (row.attempt == report.attempt or "attempt" not in self.guards)
        )
        return self._verdict(state, report) if current else state

    def _verdict(self, state: State, report: Report) -> State:
        row = state.row
        once = self.delivery == "at_most_once" and "delivery" in self.guards
        cleared = NO_SESSION if "session cleared" in self.guards else row.session
        if report.outcome == "succeeded":
            return ends(state, "succeeded")
        if row.cancelling:
            return ends(state, "cancelled")
        if report.outcome == "preempted" and not once:
            number = row.attempt if "attempt grows" in self.guards else row.attempt - 1
            return state._replace(row=row._replace(state="queued", session=cleared, attempt=number))
        failures = min(MAX_RETRIES, row.failures + 1)
        if once or failures == MAX_RETRIES:
            return ends(state, "failed" if report.outcome == "failed" else "lost")
        return state._replace(row=row._replace(state="queued", session=cleared, failures=failures))

    # Invariants ----------------------------------------------------------------------------------------

    def of_state(self) -> Mapping[str, Callable[[State], bool]]:
        found: dict[str, Callable[[State], bool]] = {
            "I5 at most one live attempt": lambda s: sum(1 for child in s.children if child) < 2,
            "I9 running has a session, and no other live state": lambda s: (
                s.row.state in FINAL or (s.row.state == "running") == (s.row.session >= 0)
            ),
            "I14 one dead letter": lambda s: s.dead_letters == (s.row.state in ("failed", "lost")),
        }
        if self.delivery == "at_most_once":
            found["I8 at most one start"] = lambda s: s.starts < 2
        return found

    def of_step(self) -> Mapping[str, Callable[[State, State], bool]]:
        return {
            "I6 attempts do not overlap": lambda a, b: b.starts == a.starts or not any(a.children),
            "I7 attempt numbers only grow": lambda a, b: b.row.attempt >= a.row.attempt,
            "I10 final rows do not change": lambda a, b: a.row.state not in FINAL or a.row == b.row,
        }

    def progress(self) -> tuple[str, Callable[[State], bool]]:
        # With every session gone, or every attempt of this small model used up, nothing can be claimed any more.
        return (
            "I16 nothing stays running without a session",
            lambda s: (
                s.row.state in FINAL
                or (s.row.state == "queued" and (len(s.ended) == len(SESSIONS) or s.row.attempt == MOST_ATTEMPTS))
            ),
        )


def replace_child(state: State, session: int, attempt: int) -> State:
    return state._replace(children=(*state.children[:session], attempt, *state.children[session + 1 :]))


def ends(state: State, final: str) -> State:
    letters = min(2, state.dead_letters + (final in ("failed", "lost")))
    return state._replace(row=state.row._replace(state=final), dead_letters=letters)
