"""Worker streams: waiting workers that stay open from one delivery to the next."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from mainspring import wire
from mainspring.dispatch.lines import WorkerProfile
from mainspring.dispatch.match import capacity_of
from mainspring.dispatch.waiting import WaitingWorker
from mainspring.domain.job import Definition
from mainspring.store.sessions import Session

MAX_KNOWN_DEFINITIONS = 10_000


class WorkerStream(WaitingWorker):
    """One open stream. Its capacity is what the worker stated, less what was sent since.

    The worker counts what it has received, so a statement that crosses a delivery on the way is not mistaken for free
    slots. After attempts that need more than a slot, nothing is sent until the worker states what they leave.
    """

    def __init__(
        self, session: Session, profile: WorkerProfile, send: Callable[[wire.ApiMessage], None], *, heard_at: float
    ) -> None:
        super().__init__(session, profile, capacity_of(session, 0, session.resources))
        self.heard_at = heard_at
        self._send = send
        self._sent = 0
        self._stated_after = 0  # statements older than this delivery do not count
        self._blocked = True
        self._definitions: set[str] = set()

    @property
    def is_free(self) -> bool:
        return super().is_free and not self._blocked

    def state(self, capacity: wire.Capacity) -> bool:
        """Record what the worker has free; return whether that counts."""
        if capacity.received < self._stated_after or capacity.received > self._sent:
            return False
        free = min(capacity.free, self.session.slots) - (self._sent - capacity.received)
        self.capacity.free = free - self.reserved
        self.capacity.resources = self.session.resources if capacity.resources is None else capacity.resources
        self._blocked = False
        return True

    def block(self) -> None:
        """Count on nothing until the worker states its capacity again."""
        self._blocked = True
        self._stated_after = self._sent

    def deliver(
        self, executions: list[wire.Assignment], definitions: dict[str, Definition], *, demanding: bool
    ) -> None:
        self._sent += len(executions)
        self.capacity.free -= len(executions)
        if demanding:
            self.block()
        new = {name: each for name, each in definitions.items() if name not in self._definitions}
        forget = len(self._definitions) + len(new) > MAX_KNOWN_DEFINITIONS
        if forget:
            new = definitions
            self._definitions.clear()
        self._definitions.update(new)
        self._send(wire.Work(executions=executions, definitions=new, forget=forget))

    def stop_attempts(self, cancels: list[UUID], preempts: list[wire.Preempt]) -> None:
        if cancels or preempts:
            self._send(wire.Work(cancels=cancels, preempts=preempts))

    def decline(self) -> None:
        self.block()

    def ask_again(self) -> None:
        self._send(wire.StateCapacity())

    def close(self, *, session_ended: bool = False) -> None:
        self._send(wire.Closing(session_ended=session_ended))
