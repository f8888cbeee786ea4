"""A worker under simulation: the rules of the real one as a small model, and evidence of what it started when.

Its guardian is part of it, and acts also while the worker is paused: it ends the attempts before the lease does.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.domain.settlement import AttemptResult

LEASE_S = 20.0
GUARDIAN_S = 3.0
"""The guardian ends the attempts this long before the lease does."""
BEAT_S = 5.0
GIVE_UP_S = 5.0
"""A heartbeat that a stream has not answered for this long goes another way, and the stream is closed."""
SLOTS = 3
Key = tuple[UUID, int]


@dataclass
class Start:
    """Evidence: one start of an attempt."""

    execution: UUID
    attempt: int
    session: UUID
    worker: str
    began: float
    ends: float  # when its work is done
    ended: float | None = None


@dataclass
class Evidence:
    """Every start of every worker, and what was wrong with it at once."""

    starts: dict[UUID, list[Start]] = field(default_factory=dict)
    offences: list[str] = field(default_factory=list)

    def add(self, start: Start) -> None:
        for other in self.starts.setdefault(start.execution, []):
            if other.ended is None:
                self.offences.append(
                    f"overlap: {start.execution} attempt {start.attempt} starts on {start.worker} at {start.began},"
                    f" attempt {other.attempt} still runs on {other.worker}"
                )
            if other.attempt >= start.attempt:
                self.offences.append(f"double start: {start.execution} attempt {start.attempt}")
        self.starts[start.execution].append(start)


class ModelWorker:
    """`send` puts a message to an api process on the network; `number` says which process it prefers."""

    def __init__(self, name: str, send: Callable[[str, dict[str, Any]], None], evidence: Evidence) -> None:
        self.name = name
        self.session: UUID | None = None
        self.stream: str | None = None
        self._send = send
        self._evidence = evidence
        self._lease_end = 0.0
        self._beat_at = float("-inf")
        self._register_at = float("-inf")
        self._stream_at = float("-inf")
        self._report_at = float("-inf")
        self._received = 0
        self._opened = 0
        self._is_open = False  # whether the api has answered
        self._seen: set[Key] = set()
        self._disclaimed: dict[Key, AttemptResult] = {}  # the results that say so, until they are accepted
        self._refused: set[Key] = set()
        self._running: dict[Key, Start] = {}
        self._unreported: dict[Key, AttemptResult] = {}

    # What happens by itself ------------------------------------------------------------------------------

    def time_passes(self, now: float, rng: random.Random) -> None:
        """Attempts end; the guardian ends the others before the lease does."""
        limit = self._lease_end - GUARDIAN_S
        for key, start in list(self._running.items()):
            if start.ends <= min(now, limit):
                start.ended = start.ends
                outcome = rng.choices(["succeeded", "failed", "timed_out"], [7, 2, 1])[0]
                self._unreported[key] = AttemptResult(*key, start.session, outcome, 5)  # type: ignore[arg-type]
                del self._running[key]
            elif now >= limit:
                start.ended = limit
                del self._running[key]

    def crash(self, now: float) -> None:
        """The process dies; its guardian ends the attempts at once."""
        for start in self._running.values():
            start.ended = now
        session = self.session
        self._forget_session()
        if session is not None:
            self._send("end", {"session": session})

    def _forget_session(self) -> None:
        self._running.clear()
        self._unreported.clear()
        self._seen.clear()
        self._disclaimed.clear()
        self._refused.clear()
        self.session = self.stream = None
        self._register_at = float("-inf")

    # What it does ----------------------------------------------------------------------------------------

    def act(self, now: float) -> None:
        if self.session is not None and now >= self._lease_end:
            self._end_session(now)
        if self.session is None:
            if now - self._register_at >= BEAT_S:
                self._register_at = now
                self._send("register", {"at": now})
            return
        if now - self._beat_at >= BEAT_S:
            self._beat_at = now
            self._beat(now)
        if self.stream is None and now - self._stream_at >= 1.0:
            self._stream_at = now
            self._opened += 1
            self.stream = f"{self.name}/{self._opened}"
            self._received, self._is_open = 0, False
            self._send("open", {"session": self.session, "stream": self.stream, "held": self._held()})
        if self.stream is not None and self._is_open:
            self._state_capacity()
        results = [*self._unreported.values(), *self._disclaimed.values()]
        if results and now - self._report_at >= 1.0:
            self._report_at = now
            self._send("report", {"session": self.session, "results": results})

    def _beat(self, now: float) -> None:
        self._send("beat", {"session": self.session, "running": self._held(), "at": now})

    def _held(self) -> list[UUID]:
        return [execution for execution, _ in [*self._running, *self._unreported]]

    def _state_capacity(self) -> None:
        capacity = wire.Capacity(received=self._received, free=max(0, SLOTS - len(self._running)))
        self._send("capacity", {"stream": self.stream, "capacity": capacity})

    def _end_session(self, now: float) -> None:
        for start in self._running.values():
            start.ended = now
        self._forget_session()

    # What it is sent -------------------------------------------------------------------------------------

    def receive(self, kind: str, body: dict[str, Any], now: float) -> None:
        getattr(self, f"_on_{kind}")(now=now, **body)

    def _on_registered(self, *, now: float, session: UUID, at: float) -> None:
        if self.session is None:
            self.session, self._lease_end, self._beat_at = session, at + LEASE_S, now

    def _on_beaten(
        self, *, now: float, session: UUID, at: float, lease_s: float, gone: list[UUID], preempts: list[Key]
    ) -> None:
        if session != self.session:
            return
        self._lease_end = max(self._lease_end, at + lease_s)
        for key, start in list(self._running.items()):
            if (key[0] in gone and start.began < at) or key in preempts:
                start.ended = now
                del self._running[key]
        for key in preempts:
            if key not in self._seen and key not in self._refused:
                self._refused.add(key)
                self._disclaimed[key] = AttemptResult(*key, session, "preempted", 0)
        for key in list(self._unreported):
            if key[0] in gone:
                del self._unreported[key]

    def _on_ended(self, *, now: float, session: UUID) -> None:
        if session == self.session:
            self._end_session(now)

    def _on_opened(self, *, now: float, stream: str) -> None:
        if stream == self.stream:
            self._is_open = True
            self._state_capacity()

    def _on_closed(self, *, now: float, stream: str) -> None:
        if stream == self.stream:
            self.stream = None

    def _on_settled(self, *, now: float, keys: list[Key]) -> None:
        for key in keys:
            self._unreported.pop(key, None)
            self._disclaimed.pop(key, None)

    def _on_work(self, *, now: float, stream: str, executions: list[wire.Assignment], lasts: list[float]) -> None:
        if stream != self.stream or self.session is None:
            return
        for assignment, seconds in zip(executions, lasts, strict=True):
            self._received += 1
            key = (assignment.execution_id, assignment.attempt)
            if key in self._seen or key in self._refused or now >= self._lease_end - GUARDIAN_S:
                continue
            self._seen.add(key)
            start = Start(*key, self.session, self.name, now, now + seconds)
            self._evidence.add(start)
            self._running[key] = start
