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

    def write(self, stream: wire.Stream, data: bytes) -> None:
        if self._left <= 0 or not data:
            return
        data = data[: self._left]
        self._left -= len(data)
        self._add(stream, data)
        if self._left == 0:
            self._add("system", f"\n[output is cut here: more than {self._most:,} bytes]\n".encode())

    def _add(self, stream: wire.Stream, data: bytes) -> None:
        if self._parts and self._parts[-1][0] == stream and len(self._parts[-1][1]) + len(data) <= CHUNK_BYTES:
            self._parts[-1][1].extend(data)
        else:
            self._parts.append((stream, bytearray(data)))

    def take(self) -> list[wire.Output]:
        """Everything since the last call, as numbered chunks."""
        parts, self._parts = self._parts, []
        chunks = []
        for stream, data in parts:
            for start in range(0, len(data), CHUNK_BYTES):
                chunks.append(
                    wire.Output(
                        execution_id=self._execution_id, attempt=self._attempt, seq=self._seq, stream=stream,
                        data=bytes(data[start : start + CHUNK_BYTES]),
                    )
                )  # fmt: skip
                self._seq += 1
        return chunks
