"""Lines of a log are written once, however connections are lost and pieces are cut."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from mainspring.worker.executors.pods.log_reader import LogLines

LINES = [b"2026-01-01T00:00:0%d.00000000%dZ text %d\n" % (n // 3, n, n) for n in range(9)]
TEXT = b"".join(line.partition(b" ")[2] for line in LINES)


@given(st.lists(st.integers(0, len(b"".join(LINES))), max_size=6), st.integers(1, 40))
def test_every_byte_is_written_once(cuts: list[int], piece: int) -> None:
    """A connection that is cut anywhere continues from the second of the last line, which the cluster repeats."""
    written: list[bytes] = []
    lines = LogLines(written.append)
    for cut in [*cuts, 10**9]:
        lines.restart()
        since = (lines.since or "").rstrip("Z").encode()
        sent = b"".join(line for line in LINES if line >= since)[:cut]
        for at in range(0, len(sent), piece):
            lines.feed(sent[at : at + piece])
    assert b"".join(written) == TEXT


def test_a_new_connection_reads_from_the_second_of_the_last_line() -> None:
    lines = LogLines(lambda data: None)
    assert lines.since is None
    lines.feed(b"2026-01-01T10:20:30.123456789Z hello\n")
    assert lines.since == "2026-01-01T10:20:30Z"
    lines = LogLines(lambda data: None)
    lines.feed(b"2026-01-01T10:20:30.123456789+02:00 hello\n")
    assert lines.since == "2026-01-01T10:20:30+02:00"


def test_what_is_no_timestamp_does_not_grow_without_a_bound() -> None:
    written: list[bytes] = []
    lines = LogLines(written.append)
    for _ in range(1_000):
        lines.feed(random.Random(1).randbytes(100).replace(b" ", b"x").replace(b"\n", b"x"))
    assert len(lines.last) <= 64
