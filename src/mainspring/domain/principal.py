"""Principals: tokens as they are recorded beside what they changed."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from mainspring.domain.errors import Invalid, invalid
from mainspring.domain.grants import WorkerGrants

MAX_NAME_CHARS = 100
SHORT_ID = 8
"""Hexadecimal digits of a token's id that are shown beside its name."""


class Principal(str):
    """The token that makes a change, as text: its name and the start of its id, such as `ci [3f2a9c1b]`.

    Administrators choose the names of tokens; ids are random. So no token can pass for another one, or for the system,
    by its name. It is a str, because that is what tables, messages and pages contain.
    """

    __slots__ = (
        "grants",
        "groups",
        "issued_by",
        "issuers",
        "name",
        "person_id",
        "principal_id",
        "queue_is_limited",
        "quota_id",
        "role",
        "schedule_quota",
        "token_id",
        "user",
    )

    name: str
    token_id: UUID
    principal_id: UUID | None
    schedule_quota: int | None
    quota_id: UUID
    grants: WorkerGrants | None
    queue_is_limited: bool
    role: str | None
    user: str | None
    groups: frozenset[str]
    person_id: UUID
    issuers: frozenset[UUID]
    issued_by: str | None

    def __new__(
        cls,
        name: str,
        token_id: UUID,
        *,
        schedule_quota: int | None = None,
        quota_id: UUID | None = None,
        grants: WorkerGrants | None = None,
        queue_is_limited: bool = False,
        role: str | None = None,
        user: str | None = None,
        groups: Collection[str] = (),
        delegated_by: UUID | None = None,
        issuers: Collection[UUID] = (),
        issued_by: str | None = None,
    ) -> Principal:
        """A principal with what limits its changes.

        `schedule_quota`: how many schedules it may create per hour, counted under `quota_id`, the id of its user, which
        the tokens of a user share; None: any number. `grants`: the queues and labels of the jobs that it may change and
        run; None: any. `queue_is_limited`: whether its tenant has a quota of executions that have not started.
        `role`, `user` and `groups`: who may decide approvals is named by them. `delegated_by`: the user or token that
        issued the token with the scope `tokens`; approvals and quotas count the two as one person, `person_id`.
        `issuers`: other users and tokens that issued the token, or a token in the chain to it, and so know it;
        `issued_by`: the name of the nearest.
        """
        made = super().__new__(cls, named(name, token_id))
        made.name = name
        made.token_id = token_id
        made.schedule_quota = schedule_quota
        made.principal_id = quota_id
        made.grants = grants
        made.queue_is_limited = queue_is_limited
        made.role = role
        made.user = user
        made.groups = frozenset(groups)
        made.person_id = delegated_by or quota_id or token_id
        made.quota_id = made.person_id
        made.issuers = frozenset(issuers)
        made.issued_by = issued_by
        return made

    def may_be(self, person_id: UUID, issuers: Collection[UUID]) -> bool:
        """Whether this and another principal may be one person: they are, or one of them issued the other's token."""
        return person_id == self.person_id or person_id in self.issuers or self.person_id in issuers


def named(name: str, token_id: UUID | None) -> str:
    """A name as it is shown: with the start of the token's id, if a token has it."""
    return name if token_id is None else f"{name} [{token_id.hex[:SHORT_ID]}]"


def is_group_name(name: str) -> bool:
    """Whether a gate could name this group, and a page show it."""
    return 0 < len(name) <= MAX_NAME_CHARS and name.isprintable()


def check_token_name(name: str) -> None:
    """Refuse names of tokens that could be read as another name with its id."""
    if not name or len(name) > MAX_NAME_CHARS:
        raise _bad_name("a token needs a name", f"1 to {MAX_NAME_CHARS} characters that say who uses it")
    if not name.isprintable() or "[" in name or "]" in name:
        raise _bad_name("a token's name cannot contain brackets or control characters", "use letters, digits and '-'")


def _bad_name(message: str, hint: str) -> Invalid:
    return invalid("/name", message, hint=hint)
