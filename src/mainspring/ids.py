"""New ids: time-ordered UUIDs (RFC 9562 version 7), so that inserts stay at the right edge of an index."""

from __future__ import annotations

import os
from uuid import UUID


def new_id(now_ms: float) -> UUID:
    random = int.from_bytes(os.urandom(10))
    high = (int(now_ms) & (1 << 48) - 1) << 80 | 0x7000 << 64 | (random >> 68 & 0xFFF) << 64
    return UUID(int=high | 0b10 << 62 | random & (1 << 62) - 1)


SLOTS, SHARDS = 1024, 64


def shard_of(job_id: UUID) -> int:
    """The shard a job belongs to, for good: one of 1,024 slots by its random bits, folded to the shards."""
    return job_id.int % SLOTS % SHARDS
