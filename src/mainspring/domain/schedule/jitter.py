"""Deterministic start delay per execution. It moves the start, not `fire_at`."""

import hashlib
from uuid import UUID


def jitter_ms(execution_id: UUID, jitter_ms: int, gap_to_next_ms: int | None) -> int:
    """The delay in milliseconds: at most `jitter_ms`, and less than the gap to the next fire."""
    most = jitter_ms if gap_to_next_ms is None else min(jitter_ms, gap_to_next_ms - 1)
    if most <= 0:
        return 0
    # Seven bytes, so that PostgreSQL's bigint holds them (store/schema.sql has the same in SQL).
    return int.from_bytes(hashlib.sha256(execution_id.bytes).digest()[:7], "big") % (most + 1)
