"""Reads the log of a pod into the output of its attempt, each line once, across lost connections."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from mainspring.worker.executors.pods.cluster import Cluster, ClusterRefused, ClusterUnavailable

FIRST_RETRY_S, LONGEST_RETRY_S = 0.2, 5.0
MAX_TIMESTAMP_BYTES = 64


class LogLines:
    """Splits a log with timestamps into its text, and skips lines that were read before.

    Each line begins with its instant and a blank. The instants of one container grow, and have the same length, so they
    compare as texts.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._stamp = b""  # of the line that is being read; incomplete while `_in_stamp`
        self._in_stamp = True
        self._skip = 0  # bytes of this line that were read before
        self._read = 0  # bytes that were read of the last line
        self.written = 0
        self.last = b""  # instant of the last line that was begun

    def restart(self) -> None:
        """A new connection begins with a whole line."""
        self._stamp, self._in_stamp, self._skip = b"", True, 0

    def feed(self, data: bytes) -> None:
        while data:
            data = self._feed_stamp(data) if self._in_stamp else self._feed_text(data)

    def _feed_stamp(self, data: bytes) -> bytes:
        head, blank, rest = data.partition(b" ")
        if not blank and len(self._stamp) + len(head) <= MAX_TIMESTAMP_BYTES:
            self._stamp += head
            return b""
        self._stamp = (self._stamp + head)[:MAX_TIMESTAMP_BYTES]
        self._in_stamp = False
        if self._stamp < self.last:
            self._skip = sys.maxsize
        elif self._stamp == self.last:
            self._skip = self._read
        else:
            self.last, self._read, self._skip = self._stamp, 0, 0
        return rest

    def _feed_text(self, data: bytes) -> bytes:
        text, newline, rest = data.partition(b"\n")
        line = text + newline
        if self._skip < sys.maxsize:
            fresh = line[self._skip :]
            self._skip = max(0, self._skip - len(line))
            self._read += len(fresh)
            if fresh:
                self.written += len(fresh)
                self._write(fresh)
        if newline:
            self._stamp, self._in_stamp = b"", True
        return rest

    @property
    def since(self) -> str | None:
        """From where a new connection has to read: whole seconds, as the API takes them."""
        if not self.last:
            return None
        text = self.last.decode("ascii", "replace")
        seconds, dot, rest = text.partition(".")
        return f"{seconds}{rest.lstrip('0123456789')}" if dot else text


async def follow_log(
    cluster: Cluster, pod: str, *, container: str, write: Callable[[bytes], None], is_over: Callable[[], bool]
) -> None:
    """Follow the log until the container has ended and all of its log is read.

    A connection that was lost between node and API server ends like a complete one. So the log is read again until
    nothing new comes.
    """
    lines, retry_s = LogLines(write), FIRST_RETRY_S
    while True:
        over, before = is_over(), lines.written
        try:
            lines.restart()
            async with cluster.log(pod, container=container, since=lines.since) as pieces:
                async for data in pieces:
                    lines.feed(data)
            if over and lines.written == before:
                return
        except ClusterRefused as error:
            if error.status == 404 or over:
                return
        except ClusterUnavailable:
            pass  # the pod runs on, and its log is kept on the node
        if lines.written != before:
            retry_s = FIRST_RETRY_S
        await asyncio.sleep(retry_s)
        retry_s = min(retry_s * 2, LONGEST_RETRY_S)
