"""Tokens, users and roles."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec

from mainspring.wire.message import Request, Response

Text = Annotated[str, msgspec.Meta(max_length=200)]
TokenName = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
Grants = Annotated[list[Text], msgspec.Meta(max_length=100)]
Scopes = Annotated[list[Text], msgspec.Meta(max_length=20)]
Quota = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
Groups = Annotated[list[TokenName], msgspec.Meta(max_length=100)]
UserKind = Literal["user", "service"]


class NewToken(Request):
    """A token to issue: with a role, with scopes, or for a user.

    A token of a user has the rights of the user's role; a role or scopes of its own restrict it further. `queues` and
    `labels` (`key=value`) restrict the jobs that it may change and run, and what workers register for. Each is a name,
    or a prefix that ends in `*`.
    """

    name: TokenName
    role: Text | None = None
    scopes: Scopes = []
    user: Text | None = None
    queues: Grants = []
    labels: Grants = []
    kinds: Grants = []
    """Task kinds that workers may execute. Empty: every kind."""
    expires_in: Text | None = None
    """A duration such as `90d`; null: never."""
    schedule_quota: Quota | None = None
    """Schedules that it may create per hour; null: the default of the server."""


class RotateToken(Request):
    """`overlap`: how long the old token stays valid, such as `1h`."""

    overlap: Text = "1h"


class Token(Response):
    """A token without its secret. `scopes` are those in effect."""

    token_id: UUID
    name: str
    scopes: list[str]
    role: str | None
    user: str | None
    queues: list[str] | None
    labels: list[str] | None
    kinds: list[str] | None
    created_at: datetime
    created_by: str | None
    expires_at: datetime | None
    expired: bool
    last_used_at: datetime | None
    """To the minute."""
    replaced_by: UUID | None
    """The token that it was rotated to."""
    schedule_quota: int | None
    current: bool
    """Whether the request was made with it."""


class IssuedToken(Response):
    """A new token. `token` is shown only here: the server keeps its digest."""

    token: str
    token_id: UUID
    name: str
    scopes: list[str]
    expires_at: datetime | None
    replaces: UUID | None = None
    replaced_until: datetime | None = None
    """Until when the old token is valid, after a rotation."""


class RoleSpec(Request):
    scopes: Annotated[list[Text], msgspec.Meta(min_length=1, max_length=20)]
    description: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class Role(Response):
    """A named set of scopes. Built-in roles cannot be changed."""

    name: str
    scopes: list[str]
    description: str
    built_in: bool
    created_at: datetime | None = None
    created_by: str | None = None


class NewUser(Request):
    """A user, or with `kind: service` a program."""

    name: Text
    role: Text
    display_name: Text = ""
    kind: UserKind = "user"
    groups: Groups = []
    """Groups that gates of workflows can name."""


class UserChange(Request):
    """Fields that are null stay as they are."""

    role: Text | None = None
    display_name: Text | None = None
    groups: Groups | None = None
    """All groups of the user from now on."""


class User(Response):
    user_id: UUID
    name: str
    display_name: str
    kind: UserKind
    role: str
    created_at: datetime
    created_by: str
    tokens: int
    """Valid tokens."""
    last_used_at: datetime | None
    """When one of its tokens was used last, to the minute."""
    issuer: str | None = None
    """The identity provider that knows the user and decides about its role."""
    blocked_at: datetime | None = None
    """Since when it is blocked."""
    groups: list[str] = []


class Whoami(Response):
    """The caller of a request, and what it may do."""

    name: str
    token_id: UUID
    tenant: str
    role: str | None
    scopes: list[str]
    user_id: UUID | None
    expires_in_s: float | None
    """Until the credential expires; null: it does not."""
    groups: list[str] = []
