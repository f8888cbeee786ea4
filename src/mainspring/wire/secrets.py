"""Secrets. Responses contain metadata only; no response contains a value."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec

from mainspring.domain.bounds import Line, Name
from mainspring.domain.secret import MAX_VALUE_CHARS, Patterns
from mainspring.wire.message import Request, Response
from mainspring.wire.worker_protocol import AttemptNumber

SecretValue = Annotated[str, msgspec.Meta(max_length=MAX_VALUE_CHARS)]


class Secret(Response):
    """A secret without its value. `version` grows when the value changes.

    `key_id` is the master key that protects the value; null for a value that a provider keeps.
    """

    name: str
    version: int
    description: str
    jobs: list[str]
    queues: list[str]
    hosts: list[str]
    channels: list[str]
    triggers: list[str]
    provider: str | None
    path: str | None
    key_id: str | None
    created_at: datetime
    created_by: str
    updated_at: datetime
    updated_by: str
    last_used_at: datetime | None


class SecretSpec(Request):
    """A secret to create or replace.

    `value` is needed for a new secret; left out, the stored value stays. With `provider`, the value is read from there
    by `path` when it is used, and is never stored. `jobs`, `channels`, `triggers`, `queues` and `hosts` are the
    destinations.
    """

    value: SecretValue | None = None
    provider: Name | None = None
    path: Line | None = None
    description: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    jobs: Patterns = []
    queues: Patterns = []
    hosts: Patterns = []
    channels: Patterns = []
    triggers: Patterns = []


class RotateSecret(Request):
    """The new value of a secret."""

    value: SecretValue


class SecretKeys(Response):
    """Master keys by id, the current one first, with the number of values that each protects."""

    current: str
    keys: dict[str, int]
    rewrapped: int = 0
    """Values that this request has wrapped in the current key."""
    encrypted: int = 0
    """Channels and triggers whose secrets this request has encrypted."""
    plain: int = 0
    """Channels and triggers whose secrets are in plain text."""


class FetchSecrets(Request):
    """Asks for the secrets of a running attempt, with its credential."""

    session_id: UUID
    execution_id: UUID
    attempt: AttemptNumber
    credential: Name = ""


class AttemptSecrets(Response):
    """Values by the name of the secret, for one attempt; or why it cannot have them."""

    values: dict[str, str]
    problem: str | None = None
    retry: bool = True
