"""stdout and stderr of functions: each call has its own log, even if several share the process."""

from __future__ import annotations

import io
from typing import TextIO

from mainspring import runner_protocol as protocol
from mainspring.sdk.context import current

FLUSH_CHARS = 8_000


class CallStream(io.TextIOBase):
    """Replaces sys.stdout or sys.stderr. Outside a call, and in threads of a call, it writes to the real stream."""

    def __init__(self, name: protocol.Stream, real: TextIO) -> None:
        self._name = name
        self._real = real

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def buffer(self) -> io.BufferedIOBase:
        return self._real.buffer  # type: ignore[return-value]

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._real.fileno()

    def write(self, text: str) -> int:
        if (call := current.get()) is not None:
            call.write(self._name, text, flush=len(text) > FLUSH_CHARS or "\n" in text)
        else:
            self._real.write(text)
            self._real.flush()
        return len(text)

    def flush(self) -> None:
        if (call := current.get()) is not None:
            call.flush()
        else:
            self._real.flush()
