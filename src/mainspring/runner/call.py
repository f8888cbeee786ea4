"""One call while it runs: its identity, and where its output, progress and files go."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Timer
from time import monotonic
from typing import Any

import msgspec

from mainspring import runner_protocol as protocol

PROGRESS_S = 0.1
"""Progress is sent at most this often."""
GATHER_S = 0.05
"""Lines are gathered this long, so that each printed line does not cost a message."""


class CallInProgress:
    """The current call, as `mainspring.sdk` uses it. Implements `CurrentCall`."""

    _folder: str | None = None
    _sent_at = 0.0
    _progress_sent_at = 0.0
    _progress: protocol.ProgressMade | None = None
    committed = False

    def __init__(
        self, number: int, job: str, call: protocol.Call, send: Callable[[protocol.RunnerMessage], None], folder: str
    ) -> None:
        self.number, self.job = number, job
        self._call, self._send, self._runner_folder = call, send, folder
        self._output: list[tuple[protocol.Stream, list[str]]] = []

    @property
    def execution_id(self) -> str:
        return str(self._call.execution_id)

    @property
    def attempt(self) -> int:
        return self._call.attempt

    @property
    def fire_at(self) -> str:
        return str(self._call.fire_at)

    @property
    def last_checkpoint(self) -> Any:
        return self._call.checkpoint

    @property
    def inputs(self) -> str | None:
        return self._call.inputs

    def write(self, stream: protocol.Stream, text: str, *, flush: bool) -> None:
        if self._output and self._output[-1][0] == stream:
            self._output[-1][1].append(text)
        else:
            self._output.append((stream, [text]))
        if flush and monotonic() - self._sent_at > GATHER_S:
            self.flush()

    def flush(self) -> None:
        output, self._output = self._output, []
        for stream, parts in output:
            self._send(protocol.OutputWritten(self.number, stream, "".join(parts)))
        self._sent_at = monotonic()

    def report_progress(self, done: float, total: float | None, message: str | None) -> None:
        progress = protocol.ProgressMade(
            self.number, float(done), None if total is None else float(total), None if message is None else str(message)
        )
        waits, self._progress = self._progress is not None, progress
        if monotonic() - self._progress_sent_at >= PROGRESS_S:
            self._send_progress()
        elif not waits:  # the last report must not wait for a next one
            timer = Timer(PROGRESS_S, self._send_progress)
            timer.daemon = True
            timer.start()

    def save_checkpoint(self, value: bytes) -> None:
        self._send(protocol.CheckpointSaved(self.number, msgspec.Raw(value)))

    def artifact_folder(self) -> str:
        """Return the folder for artifacts. The worker removes it, and knows it before the first file is there."""
        if self._folder is None:
            self._folder = os.path.join(self._runner_folder, str(self.number))
            os.mkdir(self._folder, 0o700)
            self._send(protocol.ArtifactFolder(self.number))
        return self._folder

    def end(self) -> None:
        self._progress = None
        if self._output:
            self.flush()

    def _send_progress(self) -> None:
        progress, self._progress = self._progress, None
        if progress is not None:
            self._progress_sent_at = monotonic()
            self._send(progress)
