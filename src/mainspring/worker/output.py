"""The output of an attempt: gathered in chunks, capped, and sent while it runs."""

from __future__ import annotations

import re
from uuid import UUID

from mainspring import wire
from mainspring.domain.masking import Mask, MaskedStream

MAX_BYTES = 5_000_000
CHUNK_BYTES = 64_000
TAIL_BYTES = 4_000
TAIL_LINES = 10
MAX_TAIL_LINE_CHARS = 300
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
"""Control sequences of terminals: colours, titles, movements of the cursor."""


class Output:
    """Output that one attempt has written and the api has not yet received."""

    def __init__(
        self, execution_id: UUID, attempt: int, *, max_bytes: int = MAX_BYTES, mask: Mask | None = None
    ) -> None:
        self._mask = mask
        self._masked: dict[wire.Stream, MaskedStream] = {}
        self._execution_id = execution_id
        self._attempt = attempt
        self._left = max_bytes
        self._max = max_bytes
        self._seq = 0
        self._chunks: list[tuple[wire.Stream, bytearray]] = []
        self._partial: dict[wire.Stream, bytes] = {}  # the first bytes of an incomplete character
        self._errors = b""  # the end of stderr

    def write(self, stream: wire.Stream, data: bytes) -> None:
        if self._mask is not None:
            if stream not in self._masked:
                self._masked[stream] = MaskedStream(self._mask)
            data = self._masked[stream].feed(data)
        self._write(stream, data)

    def _write(self, stream: wire.Stream, data: bytes) -> None:
        if stream == "stderr":  # also when the output is full: the last lines are those that explain a failure
            self._errors = (self._errors + data)[-TAIL_BYTES:] if len(data) < TAIL_BYTES else data[-TAIL_BYTES:]
        if self._left <= 0 or not data:
            return
        data = data[: self._left]
        self._left -= len(data)
        data = self._partial.pop(stream, b"") + data
        complete = _complete_length(data)
        self._partial[stream] = data[complete:]
        self._add(stream, data[:complete])
        if self._left == 0:
            self._add("system", f"\n[output truncated: more than {self._max:,} bytes]\n".encode())

    @property
    def is_full(self) -> bool:
        """Whether further output is dropped."""
        return self._left <= 0

    def explain(self, error: str) -> str:
        """Return an error followed by the last lines of stderr: the very last in the first line, then all of them."""
        text = _ESCAPES.sub("", self._errors.decode("utf-8", "replace"))
        # A progress bar writes its line again and again, each time after a carriage return.
        lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
        lines = [clean_text(line).strip()[:MAX_TAIL_LINE_CHARS] for line in lines]
        lines = [line for line in lines if line][-TAIL_LINES:]
        if not lines:
            return error
        first = f"{error}: {lines[-1]}"
        return first if len(lines) == 1 else "\n".join([first, *lines])

    def finish(self, stream: wire.Stream) -> None:
        """End a stream: an incomplete character is kept as it is."""
        if stream in self._masked:
            self._write(stream, self._masked[stream].finish())
        self._add(stream, self._partial.pop(stream, b""))

    def _add(self, stream: wire.Stream, data: bytes) -> None:
        if self._chunks and self._chunks[-1][0] == stream and len(self._chunks[-1][1]) + len(data) <= CHUNK_BYTES:
            self._chunks[-1][1].extend(data)
            return
        while len(data) > CHUNK_BYTES:  # split between characters: readers receive one chunk at a time
            size = _complete_length(data[:CHUNK_BYTES])
            self._chunks.append((stream, bytearray(data[:size])))
            data = data[size:]
        if data:
            self._chunks.append((stream, bytearray(data)))

    def take(self) -> list[wire.Output]:
        """Return everything written since the last call, as numbered chunks."""
        taken, self._chunks = self._chunks, []
        chunks = []
        for stream, data in taken:
            chunks.append(
                wire.Output(
                    execution_id=self._execution_id,
                    attempt=self._attempt,
                    seq=self._seq,
                    stream=stream,
                    data=bytes(data),
                )
            )
            self._seq += 1
        return chunks


def clean_text(text: str) -> str:
    """Replace what databases and terminals do not accept: control characters and lone surrogates."""
    plain = "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)
    return plain.encode("utf-8", "replace").decode()


def _complete_length(data: bytes) -> int:
    """Return how many bytes end with a complete UTF-8 character; all of them if it is not UTF-8."""
    for back, byte in enumerate(reversed(data[-3:]), start=1):
        if byte >= 0xC0:
            needs = 2 + (byte >= 0xE0) + (byte >= 0xF0)
            return len(data) - back if back < needs else len(data)
        if byte < 0x80:
            break
    return len(data)
