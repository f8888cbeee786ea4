"""Which requests of a tenant use the database role of the engine: those of the documentation, and no others."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from mainspring.api import auth as auth_module
from mainspring.api.app import endpoints
from mainspring.intake.executions import LARGE_BATCH
from mainspring.store.audit import ORIGIN
from mainspring.store.db import Connection, Database
from mainspring.web.app import every_page
from tests.api.test_cross_tenant import BODIES, OF_THE_ENGINE, Victim, cluster, named, victim
from tests.conftest import Cluster
from tests.support.pages import NAVIGATION, sign_in

__all__ = ["cluster", "victim"]
pytestmark = [pytest.mark.anyio, pytest.mark.requirement(139)]

METHODS = ("GET", "POST", "PATCH", "PUT", "DELETE")
OF_CREDENTIALS = ("DELETE /api/v1/tokens/{ref}", "DELETE /api/v1/users/{name}", "DELETE /api/v1/roles/{name}")
"""Requests after which the token of the caller is looked up again, or has ended."""
INSERT = (
    "Inserts manual executions of any tenants",
    "The same for executions of which some have an idempotency key",
    "The same for executions of the tenant $14",
)
"""The statements that insert submissions of all tenants together."""
DEFINITIONS = "The definitions of these versions"
"""Read for all tenants into one cache of the process, by job and version."""
PAGES_OF_THE_ENGINE = ("/system",)
AUDIT_BURSTS = "Appends audit entries"
"""Refused requests, sign-ins and uses of secrets of all tenants are recorded together, a moment later."""
WORKS = {"job": named("works")}
FORMS = {"/api/v1/executions:batch": [{"items": [WORKS, {**WORKS, "key": "k"}]}, {"items": [WORKS] * LARGE_BATCH}]}
"""A batch with keys, and one that is written in one statement of its tenant."""
_PART = re.compile(r"\{\w+\}")


@pytest.fixture
async def asked(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What requests ask of connections with the role of the engine. Credentials are known beforehand."""
    monkeypatch.setattr(auth_module, "TOKEN_CACHE_S", 1e6)
    found: list[str] = []
    root, lend = cluster.database.root, Database._lend
    assert cluster.database.has_tenant_role

    @asynccontextmanager
    async def lending(database: Database, pool: Any) -> AsyncIterator[Connection]:
        async with lend(database, pool) as connection:
            if database is not root or ORIGIN.get() is None:
                yield connection
                return
            with connection.query_logger(lambda record: found.append(record.query)):
                yield connection

    monkeypatch.setattr(Database, "_lend", lending)
    return found


def named_statements(asked: list[str]) -> set[str]:
    """The statements by the first line of their purpose, without those that are documented; the list is empty then.

    Statements of the driver, which reads the catalogue of types, have no purpose.
    """
    found = {query.removeprefix("-- ").splitlines()[0] for query in asked if query.startswith("-- ")}
    asked.clear()
    return {text for text in found if not text.startswith((AUDIT_BURSTS, *INSERT, DEFINITIONS))}


async def test_requests_of_the_api_use_the_role_of_tenants(cluster: Cluster, victim: Victim, asked: list[str]) -> None:
    headers = {"Authorization": f"Bearer {victim.client.server.token}"}
    async with cluster.database.connection() as connection:
        await connection.execute("UPDATE tenants SET max_queued = 1000000 WHERE tenant_id = $1", victim.tenant)
    cluster.context.auth.expire_all()
    await victim.client.whoami()
    asked.clear()
    found, statuses = {}, set()
    async with httpx2.AsyncClient(base_url=cluster.url, headers=headers, trust_env=False, timeout=30) as http:
        for e in sorted(endpoints(), key=lambda e: METHODS.index(e.method)):
            name = f"{e.method} {e.path}"
            if e.scope in ("cluster", "worker") or e.path in OF_THE_ENGINE or name in OF_CREDENTIALS:
                continue
            refs = victim.refs(e.path) if _PART.search(e.path) else [""]
            bodies = FORMS.get(e.path, [BODIES.get(e.path, {})]) if e.body is not None else [None]
            for ref, body in itertools.product(refs, bodies):
                async with http.stream(e.method, _PART.sub(ref, e.path), json=body) as answer:
                    if "event-stream" not in answer.headers.get("content-type", ""):
                        await answer.aread()
                statuses.add((name, answer.status_code))
                if statements := named_statements(asked):
                    found[name] = statements
    assert {("POST /api/v1/jobs/{ref}/trigger", 201), ("POST /api/v1/executions:batch", 200)} <= statuses
    assert found == {}


async def test_pages_use_the_role_of_tenants(cluster: Cluster, victim: Victim, asked: list[str]) -> None:
    found = {}
    async with httpx2.AsyncClient(base_url=cluster.url, headers=NAVIGATION, timeout=60) as browser:
        await sign_in(browser, victim.client.server.token or "")
        await browser.get("/")
        asked.clear()
        for page in every_page():
            if page.path in PAGES_OF_THE_ENGINE:
                continue
            for ref in victim.refs(page.path) if _PART.search(page.path) else [""]:
                async with browser.stream("GET", _PART.sub(ref, page.path)) as answer:
                    if "event-stream" not in answer.headers.get("content-type", ""):
                        await answer.aread()
                if statements := named_statements(asked):
                    found[page.path] = statements
    assert found == {}
