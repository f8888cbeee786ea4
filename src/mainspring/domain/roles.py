"""Scopes, and roles as named sets of scopes. Pure.

A token has a role, scopes, or both. A user's token can do what the role of the user allows, and if it names scopes or a
role itself, only those of them. `admin` includes every scope of a tenant; the scopes of the cluster are never included.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from mainspring.domain.errors import Invalid, Problem, invalid
from mainspring.domain.suggestion import closest

CLUSTER_SCOPE = "cluster"
SCOPES: Mapping[str, str] = {
    "read": "view everything of the tenant",
    "write": "create, change and run jobs",
    "operate": "rerun runs, skip and complete steps, replay and dismiss dead letters, read the audit log",
    "exceed": "write jobs whose timeout exceeds the maximum of their queue",
    "tokens": "issue, rotate and revoke tokens that may do no more than the token itself",
    "secrets": "create, rotate and delete secrets",
    "admin": "everything in the tenant, including users and roles",
    "worker": "execute only, for the queues and labels that the token grants",
    "shared": "run workers and reserve capacity that serve every tenant",
    CLUSTER_SCOPE: "manage tenants; see names of all tenants in metrics, doctor and shards",
}
OF_CLUSTER = frozenset(("shared", CLUSTER_SCOPE))
"""Scopes that reach beyond a tenant: `admin` does not include them, and only a cluster administrator grants them."""
MAX_SCOPES = len(SCOPES)
NAME = re.compile(r"\A[a-z0-9][a-z0-9_-]{0,62}\Z")


@dataclass(frozen=True, slots=True)
class Role:
    name: str
    scopes: tuple[str, ...]
    description: str


BUILT_IN: Mapping[str, Role] = {
    role.name: role
    for role in (
        Role("viewer", ("read",), "views everything of the tenant except dead letters and the audit log"),
        Role("submitter", ("read", "write"), "creates, changes and runs jobs"),
        Role("operator", ("read", "write", "operate"), "also handles failures, and reads the audit log"),
        Role("admin", ("admin",), "everything in the tenant, including users, roles and tokens"),
        Role("cluster-admin", ("admin", "shared", CLUSTER_SCOPE), "also manages tenants"),
    )
}


def includes(scopes: Collection[str], scope: str) -> bool:
    """Whether a caller with `scopes` may do what needs `scope`."""
    return scope in scopes or ("admin" in scopes and scope not in OF_CLUSTER)


def effective_scopes(
    own: Collection[str], role: Iterable[str] | None, user_role: Iterable[str] | None
) -> frozenset[str]:
    """The scopes of a token: its own and those of its role; with a user, at most those of the user's role."""
    asked = frozenset(own) | frozenset(role or ())
    if user_role is None:
        return asked
    allowed = frozenset(user_role)
    return frozenset(scope for scope in asked if includes(allowed, scope)) if asked else allowed


def not_included(asked: Iterable[str], held: Collection[str]) -> list[str]:
    """Those of the scopes that a caller does not have and so cannot grant."""
    return sorted(scope for scope in asked if not includes(held, scope))


def check_scopes(scopes: Iterable[str]) -> None:
    problems = []
    for at, scope in enumerate(scopes):
        if scope not in SCOPES:
            close = closest(scope, SCOPES)
            hint = f"did you mean {close!r}?" if close else f"known: {', '.join(SCOPES)}"
            problems.append(Problem(f"/scopes/{at}", f"unknown scope {scope!r}", hint))
    if problems:
        raise Invalid(problems[0].message, problems=tuple(problems))


def check_role_name(name: str) -> None:
    """Refuse a name for a role of a tenant that can't be one."""
    if not NAME.match(name):
        raise invalid("/name", f"{name!r} is not a name for a role", hint="lower-case letters, digits, '-' and '_'")
    if name in BUILT_IN:
        raise invalid("/name", f"the role {name!r} is built in and cannot be changed", hint="choose another name")


def check_user_name(name: str) -> None:
    if not NAME.match(name):
        raise invalid("/name", f"{name!r} is not a name for a user", hint="lower-case letters, digits, '-' and '_'")
