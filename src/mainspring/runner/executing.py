"""One call while it runs: where its output and progress go."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from threading import Timer
from time import monotonic

import msgspec

from mainspring import calls

TELL_S = 0.1
GATHER_S = 0.05


class CallInProgress:
    """Gathers output for a moment, so that a line printed does not cost a message."""

    __slots__ = (
        "_folder", "_pending", "_progress", "_send", "_sent_at", "_told_at", "attempt", "committed", "execution_id",
        "fire_at", "inputs", "job", "last_checkpoint", "number",
    )  # fmt: skip

    def __init__(self, call: calls.Call, send: Callable[[calls.Word], None]) -> None:
        self.number, self.execution_id, self.job = call.number, call.execution_id, call.job
        self.attempt, self.fire_at = call.attempt, call.fire_at
        self.committed = False
        self.last_checkpoint, self.inputs = call.checkpoint, call.inputs
        self._send = send
        self._folder: str | None = None
        self._pending: list[tuple[calls.Stream, list[str]]] = []
        self._sent_at = 0.0
        self._told_at = 0.0
        self._progress: calls.Told | None = None

    def write(self, stream: calls.Stream, text: str, *, flush: bool) -> None:
        if self._pending and self._pending[-1][0] == stream:
            self._pending[-1][1].append(text)
        else:
            self._pending.append((stream, [text]))
        if flush and monotonic() - self._sent_at > GATHER_S:
            self.flush()

    def flush(self) -> None:
        pending, self._pending = self._pending, []
        for stream, parts in pending:
            self._send(calls.Wrote(self.number, stream, "".join(parts)))
        self._sent_at = monotonic()

    def tell(self, done: float, total: float | None, message: str | None) -> None:
        told = calls.Told(
            self.number, float(done), None if total is None else float(total), None if message is None else str(message)
        )
        waits, self._progress = self._progress is not None, told
        if monotonic() - self._told_at >= TELL_S:
            self._tell_now()
        elif not waits:  # the last word must not wait for a next one
            timer = Timer(TELL_S, self._tell_now)
            timer.daemon = True
            timer.start()

    def save(self, value: bytes) -> None:
        self._send(calls.Saved(self.number, msgspec.Raw(value)))

    def folder(self) -> str:
        """For files to be kept. The worker removes it, and knows of it before the first file is there."""
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="mainspring-artifacts-")
            self._send(calls.Files(self.number, self._folder))
        return self._folder

    def _tell_now(self) -> None:
        told, self._progress = self._progress, None
        if told is not None:
            self._told_at = monotonic()
            self._send(told)

    def end(self) -> None:
        self._progress = None
        if self._pending:
            self.flush()
