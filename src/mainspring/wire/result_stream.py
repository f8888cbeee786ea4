"""The records of a result stream, version 1: how attempts ended, as JSON that other programs can read, too."""

from __future__ import annotations

import hmac
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec

from mainspring.codec import decode, encode
from mainspring.domain.bounds import Int32, Int64
from mainspring.domain.execution import Outcome
from mainspring.wire.message import Request
from mainspring.wire.worker_protocol import MAX_ERROR_CHARS, AttemptNumber, Output, Result

MAX_RECORD_BYTES = 10_000_000


class StreamedResult(Request, kw_only=True, omit_defaults=True):
    """The outcome of one attempt. `retry_count` is the number of attempts before it, `output` what the task returned.

    `job_id` is null where the api has appended the record: its worker did not state the job.
    """

    execution_id: UUID
    job_id: UUID | None = None
    attempt: AttemptNumber
    status: Outcome
    duration_ms: Int64
    retry_count: AttemptNumber = 0
    exit_code: Int32 | None = None
    error_message: Annotated[str, msgspec.Meta(max_length=MAX_ERROR_CHARS)] | None = None
    output: Any = None
    retry: bool = True


class StreamedResults(Request, kw_only=True):
    """One record: results of a session, and log output to store before them. The record's key is the session."""

    version: Literal[1]
    session_id: UUID
    results: Annotated[list[StreamedResult], msgspec.Meta(max_length=5000)]
    logs: Annotated[list[Output], msgspec.Meta(max_length=5000)] = []


def record_of(
    session_id: UUID,
    results: Sequence[Result],
    output: Sequence[Output],
    *,
    no_retry: Collection[UUID] = (),
    jobs: Mapping[UUID, UUID] | None = None,
) -> bytes:
    """Return the record of results in the form of the worker protocol. `jobs` names the job of each execution."""
    known = jobs or {}
    streamed = [
        StreamedResult(
            execution_id=r.execution_id,
            job_id=known.get(r.execution_id),
            attempt=r.attempt,
            status=r.outcome,
            duration_ms=r.duration_ms,
            retry_count=max(0, r.attempt - 1),
            exit_code=r.exit_code,
            error_message=r.error,
            output=r.result,
            retry=r.execution_id not in no_retry,
        )
        for r in results
    ]
    return encode(StreamedResults(version=1, session_id=session_id, results=streamed, logs=list(output)))


def read_record(value: bytes) -> StreamedResults:
    """Decode a record, or raise Invalid or TooLarge."""
    return decode(value, StreamedResults, limit=MAX_RECORD_BYTES, large_integers=True)


def sign(value: bytes, key_digest: bytes) -> bytes:
    """Return the proof that a record comes from a session: the key is the SHA-256 of the session's key."""
    return hmac.digest(key_digest, value, "sha256")


def is_signed(value: bytes, signature: bytes, key_digest: bytes) -> bool:
    return hmac.compare_digest(sign(value, key_digest), signature)
