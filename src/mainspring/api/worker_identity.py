"""Who sends a message of the worker protocol: the proof of its session, the credential of an attempt."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from uuid import UUID

from mainspring import wire
from mainspring.api.auth import header
from mainspring.api.route import Call
from mainspring.domain.errors import Forbidden
from mainspring.process import machine_user
from mainspring.store.sessions import SessionProof, WorkerProcess

_SESSION_KEY, _CREDENTIAL, _WORKER_USER = (
    name.lower().encode() for name in (wire.SESSION_KEY, wire.CREDENTIAL, wire.WORKER_USER)
)


def new_session_key() -> tuple[str, bytes]:
    """Return a new session key and the digest to store."""
    key = secrets.token_urlsafe(32)
    return key, digest_of(key)


def digest_of(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def proof_of(call: Call) -> SessionProof:
    """Return what a request shows: its token, and the session key that it sends."""
    key = header(call.request.scope, _SESSION_KEY)
    return SessionProof(call.caller.token_id, None if key is None else digest_of(key))


async def require_session(call: Call, session_id: UUID) -> SessionProof:
    """Refuse a request that may not act for the session; return what the session demands."""
    return await call.context.dispatcher.sessions.require(session_id, tenant=call.tenant, proof=proof_of(call))


async def require_attempt(call: Call, session_id: UUID, execution_id: UUID, attempt: int) -> None:
    """Refuse a request for an attempt unless it proves the session and shows the attempt's credential."""
    demanded = await require_session(call, session_id)
    credential = header(call.request.scope, _CREDENTIAL) or ""
    check_credentials(call, demanded, session_id, [(execution_id, attempt)], [credential])


def check_credentials(
    call: Call,
    demanded: SessionProof,
    session_id: UUID,
    attempts: Sequence[tuple[UUID, int]],
    credentials: Sequence[str],
) -> None:
    """Refuse a request unless it shows the credential of each attempt that it names.

    A worker too old to have a session key has no credentials either.
    """
    if demanded.key_digest is None:
        return
    valid = call.context.dispatcher.credentials.is_valid
    for at, (execution_id, attempt) in enumerate(attempts):
        if at >= len(credentials) or not valid(credentials[at], session_id, execution_id, attempt):
            raise Forbidden(
                f"the credential is not that of attempt {attempt} of the execution {execution_id}: send the one that"
                " came with its claim",
                code="not_attempt_owner",
            )


def process_of(call: Call) -> WorkerProcess:
    """Return the user of a worker process, as far as it reports one, and whether this process has the same."""
    given = header(call.request.scope, _WORKER_USER) or ""
    uid, _, _ = given.partition("@")
    if not (uid.isascii() and uid.isdigit() and len(uid) <= 10):
        return WorkerProcess()
    return WorkerProcess(int(uid), given == machine_user())
