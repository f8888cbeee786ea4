"""A Bloom filter of the jobs in a file, so that a page of a job's history skips the files without it."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from uuid import UUID

BITS_PER_JOB = 10
"""With four hashes, one of eighty files is read in vain."""
HASHES = 4
MOST_BYTES = 65_536


def build(jobs: Iterable[str]) -> bytes:
    known = list(jobs)
    bits = bytearray(min(MOST_BYTES, max(8, -(-len(known) * BITS_PER_JOB // 8))))
    for job in known:
        for place in _places(UUID(job), len(bits) * 8):
            bits[place >> 3] |= 1 << (place & 7)
    return bytes(bits)


def may_contain(bits: bytes, job: UUID) -> bool:
    return all(bits[place >> 3] & 1 << (place & 7) for place in _places(job, len(bits) * 8))


def _places(job: UUID, size: int) -> list[int]:
    digest = hashlib.blake2b(job.bytes, digest_size=4 * HASHES).digest()
    return [number % size for number in struct.unpack(f">{HASHES}I", digest)]
