"""`docs/reference/permissions.md`: every role, and every route and page with the roles that may use it."""

from __future__ import annotations

from collections.abc import Iterator

from mainspring.api.app import endpoints
from mainspring.domain.roles import BUILT_IN, SCOPES, includes
from mainspring.web.app import every_page
from tools.reference.markdown import code, sentence, table
from tools.reference.markdown import page as make_page

ROLES = {name: role.scopes for name, role in BUILT_IN.items()} | {"worker token": ("worker",)}


def page() -> str:
    return make_page(
        "Permissions",
        "What each role may do. Requests are refused unless a row allows them. Roles that a tenant defines are sets of"
        " scopes: [Tokens, users and roles](../how-to/access.md) describes them. The admin role of the first tenant"
        " includes the scope `cluster`.",
        "## Scopes",
        table(("Scope", "Allows"), [(code(scope), sentence(means)) for scope, means in SCOPES.items()]),
        "## API",
        table(_head(), (_row(f"{e.method} {e.path}", e.scope) for e in endpoints())),
        "## Web UI",
        table(_head(), _pages()),
    )


def _head() -> tuple[str, ...]:
    return ("Route", "Scope", *ROLES)


def _pages() -> Iterator[tuple[str, ...]]:
    for each in every_page():
        if each.get is not None:
            yield _row(f"GET {each.path}", each.read_scope)
        if each.post is not None:
            yield _row(f"POST {each.path}", each.write_scope)


def _row(route: str, scope: str) -> tuple[str, ...]:
    return (code(route), code(scope), *("yes" if includes(scopes, scope) else "" for scopes in ROLES.values()))
