"""Requests with an `Idempotency-Key`: for a day, a repeat gets the response of the first request.

The key, what the request creates and its response are committed in one transaction: the endpoint gets a context in
which every connection is the one of that transaction. So a crash leaves all of it or nothing, and a concurrent request
with the same key waits in the database until the first one has ended. A request that fails leaves no key.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from starlette.responses import Response

from mainspring.api.context import Context
from mainspring.api.problem import SAFE_HEADERS
from mainspring.domain.errors import Conflict, Invalid, Problem
from mainspring.intake.runs import RunTransactions
from mainspring.store import request_keys
from mainspring.store.db import Connection, JoinedDatabase
from mainspring.store.request_keys import Answered, RequestKey
from mainspring.views.runs import RunViews

MAX_KEY_CHARS = 255
REPLAYED = (b"idempotent-replayed", b"true")
_KEY = re.compile(r"[!-~]{1,255}+", re.ASCII)
_OF_EVERY_RESPONSE = {b"content-length", b"content-type", *(name for name, _ in SAFE_HEADERS)}
_NONCE_BYTES = 12
_canonical = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request with a key: who sent it, and what it asks for."""

    key: RequestKey
    tenant: int
    digest: bytes
    credential: bytes
    """The token, which is not stored: it encrypts the stored response, which may contain a secret."""


def check_key(key: str) -> None:
    if not _KEY.fullmatch(key):
        message = f"Idempotency-Key: must have 1 to {MAX_KEY_CHARS} visible ASCII characters without spaces"
        hint = "send a UUID, for example; a new one for each new request"
        raise Invalid(message, code="bad_idempotency_key", problems=(Problem("/Idempotency-Key", message, hint),))


def digest_of(*parts: bytes) -> bytes:
    """Return a digest of byte strings that no other sequence of byte strings has."""
    found = hashlib.sha256()
    for part in parts:
        found.update(b"%d:" % len(part))
        found.update(part)
    return found.digest()


def body_bytes(body: Any) -> bytes:
    """Return a decoded body in a form in which white space and the order of keys do not count."""
    return b"" if body is None else _canonical(body)


async def once(
    context: Context, request: KeyedRequest, handle: Callable[[Context], Awaitable[Response]]
) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
    """Handle the first request with a key; return the status, body and headers of its response."""
    async with context.keyed.turn(request.key), context.database.transaction() as connection:
        known = await request_keys.begin_request(connection, request.key, tenant=request.tenant, digest=request.digest)
        if known is not None:
            return _replay(request, known)
        response = await handle(joined(context, connection))
        headers = [(name, value) for name, value in response.raw_headers if name not in _OF_EVERY_RESPONSE]
        body = bytes(response.body)
        await request_keys.answer_request(
            connection,
            request.key,
            tenant=request.tenant,
            status=response.status_code,
            headers={name.decode(): value.decode("latin-1") for name, value in headers},
            body=seal(body, request.credential),
        )
        return response.status_code, body, headers


def _replay(request: KeyedRequest, known: Answered) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
    if known.digest != request.digest:
        message = "the Idempotency-Key was used for a different request"
        hint = "use a new key for a new request; a key stands for one request for a day"
        raise Conflict(message, code="key_reused", problems=(Problem("/Idempotency-Key", message, hint),))
    headers = [(name.encode(), value.encode("latin-1")) for name, value in known.headers.items()]
    return known.status, unseal(known.body, request.credential), [*headers, REPLAYED]


def joined(context: Context, connection: Connection) -> Context:
    """Return the context in which everything is read and written in the transaction of a connection.

    Its caches are new: what they read may be rolled back.
    """
    database = JoinedDatabase(connection, context.database)
    views = RunViews(database)
    return replace(
        context,
        database=database,
        submitter=context.submitter.joined(database),
        run_views=views,
        runs=RunTransactions(database, views, context.announcer),
    )


def seal(body: bytes, credential: bytes) -> bytes:
    """Encrypt a response for the holder of a token: AES-256-GCM under a key that is derived from the token."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + _cipher(credential).encrypt(nonce, body, None)


def unseal(sealed: bytes, credential: bytes) -> bytes:
    return _cipher(credential).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], None)


def _cipher(credential: bytes) -> AESGCM:
    # A token has 256 random bits, so one hash is enough to derive the key.
    return AESGCM(digest_of(b"mainspring response", credential))
