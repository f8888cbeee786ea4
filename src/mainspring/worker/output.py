"""Output of attempts: gathered in capped chunks, sent while the attempt runs."""

from __future__ import annotations

from uuid import UUID

from mainspring import wire

MOST_BYTES = 5_000_000
CHUNK_BYTES = 64_000


class Output:
    """What one attempt has written and the api has not yet got."""

    def __init__(self, execution_id: UUID, attempt: int, *, most_bytes: int = MOST_BYTES) -> None:
        self._execution_id = execution_id
        self._attempt = attempt
        self._left = most_bytes
        self._most = most_bytes
        self._seq = 0
        self._parts: list[tuple[wire.Stream, bytearray]] = []
        self._rest: dict[wire.Stream, bytes] = {}

    def write(self, stream: wire.Stream, data: bytes) -> None:
        if self._left <= 0 or not data:
            return
        data = data[: self._left]
        self._left -= len(data)
        data = self._rest.pop(stream, b"") + data
        whole = _whole(data)
        self._rest[stream] = data[whole:]
        self._add(stream, data[:whole])
        if self._left == 0:
            self._add("system", f"\n[output is cut here: more than {self._most:,} bytes]\n".encode())

    @property
    def is_cut(self) -> bool:
        """Whether nothing more is kept."""
        return self._left <= 0

    def finish(self, stream: wire.Stream) -> None:
        """Nothing more comes: what waited for the rest of its character goes as it is."""
        self._add(stream, self._rest.pop(stream, b""))

    def _add(self, stream: wire.Stream, data: bytes) -> None:
        if self._parts and self._parts[-1][0] == stream and len(self._parts[-1][1]) + len(data) <= CHUNK_BYTES:
            self._parts[-1][1].extend(data)
            return
        while len(data) > CHUNK_BYTES:  # cut between characters, since readers get chunk by chunk
            size = _whole(data[:CHUNK_BYTES])
            self._parts.append((stream, bytearray(data[:size])))
            data = data[size:]
        if data:
            self._parts.append((stream, bytearray(data)))

    def take(self) -> list[wire.Output]:
        """Everything since the last call, as numbered chunks."""
        parts, self._parts = self._parts, []
        chunks = []
        for stream, data in parts:
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
    """Text that a database and a terminal take as it is: no control characters, no half surrogates."""
    plain = "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)
    return plain.encode("utf-8", "replace").decode()


def _whole(data: bytes) -> int:
    """How many bytes there are up to the last whole UTF-8 character; all, if it is no UTF-8."""
    for back, byte in enumerate(reversed(data[-3:]), start=1):
        if byte >= 0xC0:
            needs = 2 + (byte >= 0xE0) + (byte >= 0xF0)
            return len(data) - back if back < needs else len(data)
        if byte < 0x80:
            break
    return len(data)
