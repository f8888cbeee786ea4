"""Where an attempt would go on: what the last one left, and what this one has said since."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from mainspring.worker.isolation.folders import open_plain

MOST_BYTES = 64_000


class Checkpoint:
    """Of one attempt. `last` is what it starts from; what it says waits here until it is sent."""

    __slots__ = ("_news", "last")

    def __init__(self, last: Any = None) -> None:
        self.last = last
        self._news: msgspec.Raw | None = None

    def save(self, value: msgspec.Raw) -> None:
        self._news = value

    def take(self) -> msgspec.Raw | None:
        """The latest word, if it has not been taken yet."""
        self.refresh()
        news, self._news = self._news, None
        return news

    def refresh(self) -> None:
        """Looks whether there is news; what is told to us directly needs no look."""


class FileCheckpoint(Checkpoint):
    """A checkpoint that a program reads and writes as a file. Only whole JSON counts, so half a file does no harm."""

    __slots__ = ("_path", "_seen", "trouble")

    def __init__(self, path: Path, last: Any = None) -> None:
        super().__init__(last)
        self._path = path
        self._seen = (0, 0)
        self.trouble: str | None = None
        if last is not None:
            path.write_bytes(msgspec.json.encode(last))
            self._seen = self._stat()

    def refresh(self) -> None:
        if (seen := self._stat()) in (self._seen, (0, 0)):
            return
        try:
            if seen[1] > MOST_BYTES:
                raise ValueError(f"it has {seen[1]:,} bytes; at most {MOST_BYTES:,} are kept")
            with open_plain(self._path) as file:
                value = file.read(MOST_BYTES + 1)
            msgspec.json.decode(value)
        except (OSError, ValueError, msgspec.DecodeError) as error:
            self.trouble = str(error)
            return
        self._seen, self.trouble = seen, None
        self.save(msgspec.Raw(value))

    def _stat(self) -> tuple[int, int]:
        try:
            stat = self._path.lstat()
        except OSError:
            return (0, 0)
        return (stat.st_mtime_ns, stat.st_size)
