"""Checkpoints: where a further attempt continues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from mainspring.worker.isolation.folders import open_regular

MAX_BYTES = 64_000


class Checkpoint:
    """The checkpoint of one attempt: `last` is what it continues from; a new value waits here until it is sent."""

    __slots__ = ("_unsent", "last")

    def __init__(self, last: Any = None) -> None:
        self.last = last
        self._unsent: msgspec.Raw | None = None

    def save(self, value: msgspec.Raw) -> None:
        self._unsent = value

    def take(self) -> msgspec.Raw | None:
        """Return the latest value, unless it was taken before."""
        self.refresh()
        value, self._unsent = self._unsent, None
        return value

    def refresh(self) -> None:
        """Read a new value from where the program puts it. Values passed to `save` need no reading."""


class FileCheckpoint(Checkpoint):
    """A checkpoint that a program reads and writes as a file. Incomplete JSON is ignored."""

    __slots__ = ("_path", "_seen", "problem")

    def __init__(self, path: Path, last: Any = None) -> None:
        super().__init__(last)
        self._path = path
        self._seen = (0, 0)  # modification time and size when last read
        self.problem: str | None = None
        if last is not None:
            path.write_bytes(msgspec.json.encode(last))
            self._seen = self._stat()

    def refresh(self) -> None:
        if (seen := self._stat()) in (self._seen, (0, 0)):
            return
        try:
            if seen[1] > MAX_BYTES:
                raise ValueError(f"it has {seen[1]:,} bytes; the limit is {MAX_BYTES:,}")
            with open_regular(self._path) as file:
                value = file.read(MAX_BYTES + 1)
            msgspec.json.decode(value)
        except (OSError, ValueError, msgspec.DecodeError) as error:
            self.problem = str(error)
            return
        self._seen, self.problem = seen, None
        self.save(msgspec.Raw(value))

    def _stat(self) -> tuple[int, int]:
        try:
            stat = self._path.lstat()
        except OSError:
            return (0, 0)
        return (stat.st_mtime_ns, stat.st_size)
