"""Plaintext secrets in definitions and parameters are refused with a hint, unless the author says they are none."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import Invalid
from tests.conftest import Cluster

pytestmark = pytest.mark.anyio

VALUE = "hunter2-in-the-clear"
SHELL = {"kind": "shell", "argv": ["true"], "env": {"DB_PASSWORD": VALUE}}


@pytest.mark.parametrize(
    ("job", "pointer"),
    [
        ({"task": SHELL}, "/task/env/DB_PASSWORD"),
        ({"task": {"kind": "http", "url": "https://x.example/", "headers": {"Authorization": f"Bearer {VALUE}"}}},
         "/task/headers/Authorization"),
        ({"task": {"kind": "noop"}, "params": {"token": {"default": VALUE}}}, "/params/token/default"),
        ({"task": {"kind": "python", "function": "a:b", "args": {"api_key": VALUE}}}, "/task/args/api_key"),
    ],
)  # fmt: skip
async def test_a_definition_is_refused_with_a_hint(client: AsyncClient, job: dict[str, Any], pointer: str) -> None:
    with pytest.raises(Invalid, match="mainspring secrets set") as refused:
        await client.create_job({"name": "plain", **job})
    assert (refused.value.code, refused.value.problems[0].pointer) == ("plaintext_secret", pointer)
    assert VALUE not in str(refused.value)
    assert (await client.jobs(prefix="plain")).items == [], "nothing is written"


async def test_the_override_is_audited(client: AsyncClient) -> None:
    job = {"name": "allowed", "task": SHELL, "allow_plaintext": ["env.DB_PASSWORD"]}
    made = await client.create_job(job)
    (entry,) = (await client.audit(subject=str(made.job_id))).items
    assert entry.details == {"allow_plaintext": ["env.DB_PASSWORD"]}
    await client.patch_job("allowed", {"priority": 3})
    env = {"DB_PASSWORD": VALUE, "OTHER_TOKEN": VALUE}
    with pytest.raises(Invalid, match="says that the value is a secret"):
        await client.patch_job("allowed", {"task": {**SHELL, "env": env}})


async def test_a_job_from_before_keeps_working(cluster: Cluster, client: AsyncClient) -> None:
    """A job that was saved with a plaintext value can be edited; only new values are refused."""
    await client.create_job({"name": "old", "task": SHELL, "allow_plaintext": ["env.DB_PASSWORD"]})
    async with cluster.database.connection() as connection:
        await connection.execute("ALTER TABLE job_versions DISABLE TRIGGER USER")
        await connection.execute("UPDATE job_versions SET spec = spec - 'allow_plaintext' WHERE spec->>'name' = 'old'")
        await connection.execute("ALTER TABLE job_versions ENABLE TRIGGER USER")
    assert (await client.patch_job("old", {"priority": 7})).spec.allow_plaintext == ()
    async with cluster.worker():
        made = await client.trigger("old")
        assert (await client.wait(made.execution_id, timeout_s=60)).state == "succeeded"


async def test_parameters_of_an_execution_are_checked(client: AsyncClient) -> None:
    job = {"name": "params", "task": {"kind": "noop"}, "params": {"api_token": {"default": ""}, "day": {"default": ""}}}
    await client.create_job(job)
    with pytest.raises(Invalid, match="allow_plaintext") as refused:
        await client.trigger("params", wire.RunNow(params={"api_token": VALUE}))
    assert VALUE not in str(refused.value)
    await client.trigger("params", wire.RunNow(params={"day": "2026-11-18"}))
    await client.patch_job("params", {"allow_plaintext": ["params.api_token"]})
    await client.trigger("params", wire.RunNow(params={"api_token": VALUE}))


async def test_steps_of_workflows_are_checked(client: AsyncClient) -> None:
    with pytest.raises(Invalid, match="a secret") as refused:
        await client.apply_workflow({"name": "flow", "steps": {"load": {"task": SHELL}}})
    assert refused.value.problems[0].pointer == "/steps/load/task/env/DB_PASSWORD"
    step = {"task": SHELL, "allow_plaintext": ["env.DB_PASSWORD"]}
    await client.apply_workflow({"name": "flow", "steps": {"load": step}})
