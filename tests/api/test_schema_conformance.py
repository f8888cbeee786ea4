"""The OpenAPI document against a real server process: Schemathesis sends what it allows, as every role and a stranger.

No answer is a server error, every answer is one that the document describes, and a stranger gets nothing. The short
form sends a few requests to each operation; `SCHEMA_EXAMPLES=50` sends more.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from mainspring import wire
from mainspring.api.app import endpoints
from mainspring.api.auth import issue_token
from mainspring.api.openapi import document
from mainspring.client import AsyncClient
from mainspring.domain.grants import EVERYTHING
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.store.db import Database
from tests.support.api_processes import api_processes
from tests.support.seeds import SEED

EXAMPLES = int(os.environ.get("SCHEMA_EXAMPLES", "0"))
ROLES = {"viewer": 1, "submitter": 1, "operator": 1, "admin": 2, "worker": 1, "anonymous": 1}
"""Examples for each operation in the short form."""
LEAST_OK = {"viewer": 20, "submitter": 20, "operator": 20, "admin": 40, "worker": 0, "anonymous": 0}
"""So many answers are 200: the document is compared with real content."""
STREAMS = ("/api/v1/stream", "/api/v1/worker/stream", "/api/v1/worker/poll", "/stream")
"""Answers that do not end by themselves."""
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
KNOWN = {
    "/api/v1/jobs/{ref}": "probe",
    "/api/v1/workflows/{ref}": "probe-flow",
    "/api/v1/calendars/{name}": "probe-days",
    "/api/v1/queues/{name}": "short",
    "/api/v1/roles/{name}": "viewer",
    "/api/v1/users/{name}": "probe-user",
}
"""Names that exist: every second request names them."""
TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Target:
    url: str
    tokens: dict[str, str]
    known: dict[str, str]


@pytest.fixture(scope="module")
async def target(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Target]:
    folder: Path = tmp_path_factory.mktemp("api")
    async with api_processes(folder, database_url, 1) as (url,), Database(database_url, size=2) as database:
        async with database.connection() as connection:
            admin = await issue_token(connection, tenant=1, name="probe admin", scopes=("admin",))
            worker = await issue_token(connection, tenant=1, name="probe worker", scopes=("worker",), grants=EVERYTHING)
        async with AsyncClient(url, admin) as client:
            known = await _objects(client)
            roles = [role for role in ROLES if role not in ("anonymous", "worker", "admin")]
            issued = {r: (await client.issue_token(wire.NewToken(name=r, role=r))).token for r in roles}
        yield Target(url, issued | {"admin": admin, "worker": worker}, KNOWN | known)


async def _objects(client: AsyncClient) -> dict[str, str]:
    """Something of most kinds; returns the paths of what has an id."""
    await client.create_job(JobSpec(name="probe", task=NoopTask()))
    await client.apply_workflow({"name": "probe-flow", "steps": {"sign": {"approval": {}}}})
    await client.create_user(wire.NewUser(name="probe-user", role="viewer"))
    execution = (await client.trigger("probe")).execution_id
    run = (await client.start_run("probe-flow")).run_id
    return {"/api/v1/executions/{ref}": str(execution), "/api/v1/runs/{run_id}": str(run)}


def operations() -> Iterator[Any]:
    schema = schemathesis.openapi.from_dict(document(endpoints()))
    for found in schema.get_all_operations():
        operation = found.ok()  # type: ignore[union-attr]
        if not operation.path.endswith(STREAMS):
            yield operation


@pytest.mark.slow
@pytest.mark.requirement(127)
@pytest.mark.parametrize("role", ROLES)
def test_every_operation_answers_as_documented(target: Target, role: str) -> None:
    """Anonymous requests get 401 everywhere: no operation of the document is public."""
    failures: list[str] = []
    answers: Counter[int] = Counter()
    with requests.Session() as session:
        session.trust_env = False
        if role != "anonymous":
            session.headers["Authorization"] = f"Bearer {target.tokens[role]}"
        for operation in operations():
            try:
                _probe(operation, session, target, role, answers)
            except (Exception, BaseExceptionGroup) as error:  # failures of Schemathesis are groups
                text = "\n".join(str(part) for part in getattr(error, "exceptions", [error]))
                failures.append(f"{operation.method.upper()} {operation.path}: {text[:1500]}")
    print(role, dict(sorted(answers.items())))
    assert answers[200] >= LEAST_OK[role], "the requests reach what they are for"
    assert not failures, f"{len(failures)} operations\n\n" + "\n\n".join(failures)


def _probe(operation: Any, session: requests.Session, target: Target, role: str, answers: Counter[int]) -> None:
    sent = 0

    @seed(SEED)
    @settings(
        max_examples=EXAMPLES or ROLES[role],
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
        database=None,
        deadline=None,
    )
    @given(case=operation.as_strategy())
    def probe(case: Any) -> None:
        nonlocal sent
        sent += 1
        if case.path_parameters and (sent % 2 or operation.method == "get"):
            for prefix, name in target.known.items():
                if operation.path.startswith(prefix):
                    case.path_parameters[prefix.rpartition("{")[2][:-1]] = name
        response = case.call(base_url=target.url, session=session, timeout=TIMEOUT_S)
        answers[response.status_code] += 1
        if role == "anonymous":
            assert response.status_code == 401, f"a stranger gets {response.status_code}: {response.text[:200]}"
        case.validate_response(response, checks=CHECKS)

    probe()
