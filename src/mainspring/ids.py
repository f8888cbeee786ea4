"""Ids: time-ordered UUIDs (RFC 9562 version 7), so that inserts append to an index; shard numbers."""

from __future__ import annotations

import os
from uuid import UUID


def new_id(now_ms: float) -> UUID:
    random = int.from_bytes(os.urandom(10))
    high = (int(now_ms) & (1 << 48) - 1) << 80 | 0x7000 << 64 | (random >> 68 & 0xFFF) << 64
    return UUID(int=high | 0b10 << 62 | random & (1 << 62) - 1)


SLOTS, SHARDS = 1024, 64


def shard_of(job_id: UUID) -> int:
    """Return the shard of a job, which never changes: its random bits select one of 1,024 slots, folded to shards."""
    return job_id.int % SLOTS % SHARDS
