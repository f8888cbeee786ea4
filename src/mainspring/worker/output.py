"""The output of an attempt: gathered in chunks, capped, and sent while it runs."""

from __future__ import annotations

from uuid import UUID

from mainspring import wire

MAX_BYTES = 5_000_000
CHUNK_BYTES = 64_000


class Output:
    """Output that one attempt has written and the api has not yet received."""

    def __init__(self, execution_id: UUID, attempt: int, *, max_bytes: int = MAX_BYTES) -> None:
        self._execution_id = execution_id
        self._attempt = attempt
        self._left = max_bytes
        self._max = max_bytes
        self._seq = 0
        self._chunks: list[tuple[wire.Stream, bytearray]] = []
        self._partial: dict[wire.Stream, bytes] = {}  # the first bytes of an incomplete character

    def write(self, stream: wire.Stream, data: bytes) -> None:
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

    def finish(self, stream: wire.Stream) -> None:
        """End a stream: an incomplete character is kept as it is."""
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
