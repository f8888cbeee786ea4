"""Secrets from a job's definition to its task, and nowhere else."""

from __future__ import annotations

import base64
from typing import Any
from uuid import UUID

import msgspec
import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import Invalid
from mainspring.domain.masking import MASK
from mainspring.worker.transport.api_client import ApiAddress, ApiClient, Refused, SessionEnded
from tests.conftest import Cluster
from tests.support.http_receiver import receiving, reply
from tests.support.processes import until_async

pytestmark = pytest.mark.anyio

VALUE = "hunter2-correct-horse"


async def dump(cluster: Cluster) -> str:
    """Every row of every table as text; binary columns also decoded."""
    found = []
    async with cluster.database.connection() as connection:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'mainspring'")
        for (table,) in tables:
            for (row,) in await connection.fetch(f'SELECT t::text FROM mainspring."{table}" t'):
                found.append(row)
        for (data,) in await connection.fetch("SELECT data FROM log_chunks"):
            found.append(data.decode("utf-8", "replace"))
    return "\n".join(found)


async def run(client: AsyncClient, job: str, **params: Any) -> wire.Execution:
    made = await client.trigger(job, wire.RunNow(params=params or None))
    return await client.wait(made.execution_id, timeout_s=60)


async def test_a_program_gets_a_value_that_is_stored_nowhere(cluster: Cluster, client: AsyncClient) -> None:
    """The task proves that it has the value by its length, and prints it in several ways, in pieces and to stderr."""
    await client.put_secret("db", wire.SecretSpec(value=VALUE, jobs=["etl*"]))
    script = (
        'echo "length ${#DB}"; echo "plain $DB"; printf "%s" "$DB" | base64; printf "x%s" "$DB" | base64;'
        ' printf "%s" "${DB%horse}"; sleep 0.2; echo horse; echo "$URL"; echo "41% $DB" > "$MAINSPRING_PROGRESS";'
        ' echo "\\"$DB\\"" > "$MAINSPRING_CHECKPOINT"; echo "failed with $DB" >&2; exit 3'
    )
    env = {"DB": "secret://db", "URL": "postgresql://user:{{secret:db}}@db.example/x"}
    task = {"kind": "shell", "argv": [script], "shell": True, "env": env}
    await client.create_job({"name": "etl", "task": task, "retries": {"max": 1, "base": "0s"}})
    async with cluster.worker():
        ended = await run(client, "etl")
    assert ended.state == "failed" and ended.error is not None and MASK in ended.error
    stored = await dump(cluster)
    assert f"length {len(VALUE)}" in stored and f"plain {MASK}" in stored
    assert f"postgresql://user:{MASK}@db.example/x" in stored
    for spelling in (
        VALUE,
        base64.b64encode(VALUE.encode()).decode(),
        base64.b64encode(b"x" + VALUE.encode()).decode(),
    ):
        assert spelling[3:-4] not in stored
    assert "secret://db" in stored, "the definition has the reference"
    used = (await client.audit(action="secret.use")).items
    assert {(entry.subject, entry.details["attempt"]) for entry in used} == {("db", 1), ("db", 2)}
    assert (await client.secret("db")).last_used_at is not None


async def test_a_call_gets_a_header_only_at_its_host(cluster: Cluster, client: AsyncClient) -> None:
    async with receiving(lambda _: reply()) as receiver:
        await client.put_secret("hook", wire.SecretSpec(value=VALUE, jobs=["call*"], hosts=["127.0.0.1"]))
        headers = {"Authorization": "Bearer {{secret:hook}}"}
        task = {
            "kind": "http",
            "url": receiver.url(),
            "method": "POST",
            "headers": headers,
            "body": {"k": "secret://hook"},
        }
        await client.create_job({"name": "call", "task": task})
        with pytest.raises(Invalid, match="may not go to the host"):
            await client.create_job({"name": "call2", "task": {**task, "url": "https://elsewhere.example/x"}})
        shell = {"kind": "shell", "argv": ["true"], "env": {"A": "secret://hook"}}
        with pytest.raises(Invalid, match="only http tasks with a fixed host"):
            await client.create_job({"name": "call3", "task": shell})
        async with cluster.worker(allow_net=("127.0.0.0/8",)):
            assert (await run(client, "call")).state == "succeeded"
        (received,) = receiver.got
        assert received.headers["authorization"] == f"Bearer {VALUE}"
        assert msgspec.json.decode(received.body) == {"k": VALUE}
    assert VALUE not in await dump(cluster)


async def test_a_secret_parameter_takes_references_only(cluster: Cluster, client: AsyncClient) -> None:
    await client.put_secret("p1", wire.SecretSpec(value=VALUE, jobs=["param*"]))
    await client.put_secret("p2", wire.SecretSpec(value=VALUE + "-two", jobs=["other"]))
    task = {"kind": "shell", "argv": ['echo "length ${#P}"'], "shell": True, "env": {"P": "{{params.key}}"}}
    job = {"name": "param", "task": task, "params": {"key": {"secret": True}}}
    await client.create_job(job)
    with pytest.raises(Invalid, match="takes a reference to a secret") as refused:
        await client.trigger("param", wire.RunNow(params={"key": "plain-text-value"}))
    assert "plain-text-value" not in str(refused.value)
    async with cluster.worker():
        assert (await run(client, "param", key="secret://p1")).state == "succeeded"
        denied = await run(client, "param", key="secret://p2")
    assert denied.state == "failed" and "may not be used by the job 'param'" in (denied.error or "")
    assert f"length {len(VALUE)}" in await dump(cluster)


async def test_text_that_a_parameter_inserts_is_not_a_reference(cluster: Cluster, client: AsyncClient) -> None:
    """Only the definition refers to secrets: what a caller or an earlier step passes is text."""
    await client.put_secret("guarded", wire.SecretSpec(value=VALUE, jobs=["echo*"]))
    task = {"kind": "shell", "argv": ["sh", "-c", 'echo "$T ${#T}"'], "env": {"T": "{{params.text}}"}}
    await client.create_job({"name": "echo", "task": task})
    async with cluster.worker():
        for text in ("secret://guarded", "{{secret:guarded}}"):
            assert (await run(client, "echo", text=text)).state == "succeeded"
            assert f"{text} {len(text)}" in await dump(cluster)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"kind": "shell", "argv": ["x", "secret://db9"]}, "visible to others"),
        ({"kind": "shell", "argv": ["x", "--p={{secret:db9}}"]}, "visible to others"),
        ({"kind": "http", "url": "https://x.example/?k={{secret:db9}}"}, "visible to others"),
        ({"kind": "shell", "argv": ["x"], "env": {"A": "secret://db9"}}, "there is no secret 'db9'"),
        ({"kind": "shell", "argv": ["x"], "env": {"A": "secret://no such"}}, "is not the name of a secret"),
        ({"kind": "python", "function": "a:b", "args": {"k": "{{secret:db9}}"}}, "there is no secret 'db9'"),
    ],
)
async def test_bad_references_are_refused_at_definition_time(
    client: AsyncClient, task: dict[str, Any], message: str
) -> None:
    with pytest.raises(Invalid, match=message):
        await client.create_job({"name": "refused", "task": task})


async def test_a_secret_that_is_deleted_or_moved_fails_the_attempt(cluster: Cluster, client: AsyncClient) -> None:
    await client.put_secret("gone", wire.SecretSpec(value=VALUE, jobs=["late*"]))
    task = {"kind": "shell", "argv": ["true"], "env": {"A": "secret://gone"}}
    await client.create_job({"name": "late", "task": task, "retries": {"max": 5}})
    async with cluster.worker():
        await client.put_secret("gone", wire.SecretSpec(jobs=["nothing"]))
        ended = await run(client, "late")
        assert (ended.state, ended.attempt) == ("failed", 1) and "may not be used" in (ended.error or "")
        await client.delete_secret("gone")
        ended = await run(client, "late")
        assert ended.state == "failed" and "there is no secret 'gone'" in (ended.error or "")


async def test_a_step_of_a_workflow_gets_its_secret(cluster: Cluster, client: AsyncClient) -> None:
    await client.put_secret("flow", wire.SecretSpec(value=VALUE, jobs=["nightly.*"]))
    env = {"A": "secret://flow", "B": "{{secret:flow}}:{{run_id}}"}
    steps = {"load": {"task": {"kind": "shell", "argv": ['echo "step ${#A}"'], "shell": True, "env": env}}}
    await client.apply_workflow({"name": "nightly", "steps": steps})
    async with cluster.worker():
        assert (await run(client, "nightly")).state == "succeeded"
    stored = await dump(cluster)
    assert f"step {len(VALUE)}" in stored and VALUE not in stored


async def test_only_the_session_of_the_attempt_gets_values(cluster: Cluster, client: AsyncClient) -> None:
    """A worker token alone is not enough, nor is another session or attempt."""
    await client.put_secret("owned", wire.SecretSpec(value=VALUE, jobs=["owned"]))
    task = {"kind": "shell", "argv": ["sleep", "60"], "env": {"A": "secret://owned"}}
    await client.create_job({"name": "owned", "task": task})
    register = wire.Register(
        name="thief", host="h", version="1", slots=1, queues=["none"], kinds=["shell"], takes=["session_key"]
    )
    api = ApiClient(ApiAddress(cluster.url, cluster.worker_token))
    session = await api.register(register)
    async with cluster.worker():
        execution = (await client.trigger("owned")).execution_id
        await until_async("it runs", lambda: _is_running(client, execution), within_s=30)
        credential = cluster.context.dispatcher.credentials.of_session(session.session_id).make(execution, 1)
        asked = wire.FetchSecrets(session_id=session.session_id, execution_id=execution, attempt=1, credential="x")
        with pytest.raises(Refused, match="the credential is not that of attempt 1"):
            await api.fetch_secrets(asked)
        with pytest.raises(Refused, match="does not run attempt 1"):
            await api.fetch_secrets(msgspec.structs.replace(asked, credential=credential))
        keyless = ApiClient(ApiAddress(cluster.url, cluster.worker_token))
        with pytest.raises((Refused, SessionEnded)):
            await keyless.fetch_secrets(msgspec.structs.replace(asked, credential=credential))
        await keyless.close()
        await client.cancel(execution)
        await client.wait(execution, timeout_s=60)
    await api.close()


async def _is_running(client: AsyncClient, execution: UUID) -> bool:
    return (await client.execution(execution)).state == "running"
