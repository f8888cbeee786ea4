"""Worker tokens, sessions and attempts: who may register for what, and who may act for whom."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import httpx2
import msgspec
import pytest

from mainspring import wire
from mainspring.api.auth import issue_token
from mainspring.client import AsyncClient
from mainspring.codec import encode
from mainspring.domain.errors import Forbidden, Invalid
from mainspring.domain.grants import EVERYTHING, WorkerGrants
from mainspring.domain.job import JobSpec
from mainspring.domain.task import PythonTask
from mainspring.process import machine_user
from mainspring.store import sessions
from mainspring.worker.transport.api_client import ApiAddress, ApiClient, Refused
from tests.conftest import Cluster
from tests.support.api_tokens import Issue
from tests.support.remote_stream import stream_of
from tests.support.remote_worker import Remote, remote

TAKES = ["preempt", "session_key"]


@pytest.fixture
def queue() -> str:
    """A queue of the test's own."""
    return f"q{uuid4().hex}"


async def granted(cluster: Cluster, grants: WorkerGrants | None) -> str:
    """A worker token with these grants; None: one from before there were any."""
    async with cluster.database.connection() as connection:
        token = await issue_token(
            connection, tenant=1, name=f"t {uuid4()}", scopes=("worker",), grants=grants or EVERYTHING
        )
        if grants is None:
            await connection.execute(
                "UPDATE tokens SET queues = NULL, labels = NULL, kinds = NULL"
                " WHERE created_at = (SELECT max(created_at) FROM tokens)"
            )
    return token


@asynccontextmanager
async def bare(cluster: Cluster, token: str, **headers: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Raw HTTP with a worker token, and with exactly these headers besides."""
    address = ApiAddress(cluster.url, token).headers
    base = f"{cluster.url}/api/v1/worker/"
    async with httpx2.AsyncClient(base_url=base, headers=address | headers, trust_env=False) as http:
        yield http


def registration(**given: Any) -> wire.Register:
    has: dict[str, Any] = {"queues": ["short"], "kinds": ["noop"], "takes": TAKES, **given}
    return wire.Register(name="n", host="h", version="1", slots=1, **has)


# Grants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "pointer", "names"),
    [
        ({"queues": ["short", "gpu-a"]}, "/queues/1", "gpu-a"),
        ({"queues": ["gpuish"]}, "/queues/0", "gpuish"),
        ({"labels": {"zone": "us"}}, "/labels/zone", "zone=us"),
        ({"labels": {"disk": "fast"}}, "/labels/disk", "disk=fast"),
        ({"kinds": ["noop", "shell"]}, "/kinds/1", "shell"),
        ({"schemas": {"sql": {"type": "object"}}}, "/kinds/1", "sql"),
    ],
)
async def test_a_registration_beyond_the_grants_is_refused_by_name(
    cluster: Cluster, given: dict[str, Any], pointer: str, names: str
) -> None:
    token = await granted(cluster, WorkerGrants(("short", "cpu-*"), ("zone=eu", "rack=*"), ("noop",)))
    async with bare(cluster, token) as http, cluster.database.connection() as connection:
        before = await connection.fetchval("SELECT count(*) FROM sessions")
        answer = await http.post("sessions", content=encode(registration(**given)))
        problem = answer.json()
        assert (answer.status_code, problem["code"], problem["errors"][0]["pointer"]) == (403, "not_granted", pointer)
        assert names in problem["detail"] and "mainspring workers token" in problem["detail"]
        assert await connection.fetchval("SELECT count(*) FROM sessions") == before


async def test_a_registration_within_the_grants_is_accepted(cluster: Cluster) -> None:
    token = await granted(cluster, WorkerGrants(("short", "cpu-*"), ("zone=eu", "rack=*"), ("noop",)))
    asked = registration(
        queues=["short", "cpu-1"], labels={"zone": "eu", "rack": "r9", "sandbox/memory": "cgroup2"}, kinds=["noop"]
    )
    async with bare(cluster, token) as http:
        assert (await http.post("sessions", content=encode(asked))).status_code == 201


async def test_tokens_from_before_grants_and_administrators_may_serve_any_queue(cluster: Cluster, issue: Issue) -> None:
    asked = encode(registration(queues=["anything"], labels={"zone": "eu"}, kinds=["noop", "shell"]))
    for token in (await granted(cluster, None), await issue("admin")):
        async with bare(cluster, token) as http:
            assert (await http.post("sessions", content=asked)).status_code == 201


@pytest.mark.parametrize(
    ("grants", "pointer"),
    [
        (None, "/queues"),
        (WorkerGrants(()), "/queues"),
        (WorkerGrants(("",)), "/queues/0"),
        (WorkerGrants(("short", "No Queue")), "/queues/1"),
        (WorkerGrants(("*t",)), "/queues/0"),
        (WorkerGrants(("short",), ("a b=c",)), "/labels/0"),
        (WorkerGrants(("q",) * 101), "/queues"),
    ],
)
async def test_a_new_worker_token_names_its_queues(cluster: Cluster, grants: WorkerGrants | None, pointer: str) -> None:
    async with cluster.database.connection() as connection:
        with pytest.raises(Invalid) as refused:
            await issue_token(connection, tenant=1, name="t", scopes=("worker",), grants=grants)
    assert refused.value.problems[0].pointer == pointer


async def test_an_administrator_issues_worker_tokens(cluster: Cluster, issue: Issue, queue: str) -> None:
    async with cluster.client() as client:
        new = wire.NewWorkerToken(name="fleet", queues=[queue, "gpu-*"], labels=["zone=eu"], expires_in="90d")
        issued = await client.issue_worker_token(new)
        assert issued.expires_at is not None and (issued.queues, issued.kinds) == ([queue, "gpu-*"], ["*"])
        for wrong, pointer in (
            (wire.NewWorkerToken(name="x", queues=["No Queue"]), "/queues/0"),
            (wire.NewWorkerToken(name="x", queues=["q"], expires_in="soon"), "/expires_in"),
        ):
            with pytest.raises(Invalid) as refused:
                await client.issue_worker_token(wrong)
            assert refused.value.problems[0].pointer == pointer
    async with bare(cluster, issued.token) as http:
        for queues, status in (([queue, "gpu-7"], 201), (["short"], 403)):
            answer = await http.post("sessions", content=encode(registration(queues=queues)))
            assert answer.status_code == status
    async with AsyncClient(cluster.url, await issue("write", "worker")) as client:
        with pytest.raises(Forbidden):
            await client.issue_worker_token(new)


async def test_the_doctor_names_exposed_workers_and_tokens_without_grants(cluster: Cluster, queue: str) -> None:
    await granted(cluster, None)
    async with cluster.client() as client, bare(cluster, cluster.worker_token) as http:
        mine, machine = machine_user().split("@")
        for name, user in (
            (f"root-{queue}", f"0@{machine}x"),
            (f"same-{queue}", machine_user()),
            (f"other-{queue}", f"{int(mine) + 1}@{machine}"),
            (f"old-{queue}", ""),
            (f"odd-{queue}", "root@x"),
        ):
            asked = encode(msgspec.structs.replace(registration(), name=name))
            headers = {wire.WORKER_USER: user} if user else {}
            assert (await http.post("sessions", content=asked, headers=headers)).status_code == 201
        diagnosis = await client.doctor()
        named = {name for name in ("root", "same", "other", "old", "odd") if f"{name}-{queue}" in str(diagnosis.notes)}
        assert named == {"root", "same"}
        assert any("grants every queue and label" in note for note in diagnosis.notes)


async def test_jobs_are_declared_for_granted_queues_only(cluster: Cluster, queue: str) -> None:
    token = await granted(cluster, WorkerGrants((queue,)))
    link, everything = (
        ApiClient(ApiAddress(cluster.url, token)),
        ApiClient(ApiAddress(cluster.url, cluster.worker_token)),
    )

    def spec(name: str, where: str) -> JobSpec:
        return JobSpec(name=name, task=PythonTask(function=f"m:{where}"), queue=where)

    try:
        taken, mine = f"theirs-{queue}", f"mine-{queue}"
        assert (await everything.declare([spec(taken, "other")])).jobs[0].change == "created"
        declared = (await link.declare([spec(mine, queue), spec(f"x-{queue}", "other"), spec(taken, queue)])).jobs
        assert [job.change for job in declared] == ["created", "refused", "refused"]
        assert "'other'" in (declared[1].problem or "") and "'other'" in (declared[2].problem or "")
        async with cluster.client() as client:
            assert (await client.job(taken)).spec.queue == "other", "not drawn into a queue of this token"
    finally:
        await link.close()
        await everything.close()


# Sessions ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def running(
    cluster: Cluster, queue: str, **has: Any
) -> AsyncIterator[tuple[AsyncClient, Remote, wire.Assignment]]:
    """A worker with a session key, and an attempt that it runs."""
    async with cluster.client() as client, remote(cluster, queue=queue, takes=TAKES, **has) as worker:
        job = await client.create_job(
            {"name": f"job-{uuid4()}", "task": {"kind": "noop"}, "queue": queue, "retries": {"max": 3}}
        )
        await client.trigger(job.name)
        (given,) = (await worker.poll()).executions
        yield client, worker, given


def messages(session_id: UUID, given: wire.Assignment) -> dict[str, wire.Request]:
    """Every message of the worker protocol that names a session."""
    execution, attempt = given.execution_id, given.attempt
    return {
        "poll": wire.Poll(session_id=session_id, free=1, wait_s=0),
        "results": wire.Results(
            session_id=session_id,
            results=[wire.Result(execution, attempt, "failed", 1)],
            output=[wire.Output(execution, attempt, 0, "stdout", b"forged")],
        ),
        "heartbeat": wire.Heartbeat(session_id=session_id, running=[], draining=True),
        "checkpoints": wire.SaveCheckpoints(
            session_id=session_id,
            checkpoints=[wire.CheckpointReport(execution, attempt, {"forged": 1})],
            credentials=[given.credential],
        ),
        "checkpoints/read": wire.ReadCheckpoints(
            session_id=session_id, executions=[execution], attempts=[attempt], credentials=[given.credential]
        ),
        "goodbye": wire.Goodbye(session_id=session_id, lost=True),
    }


async def state_of(cluster: Cluster, session_id: UUID, execution_id: UUID) -> tuple[Any, ...]:
    """Everything that a forged message could change."""
    async with cluster.database.connection() as connection:
        session = await connection.fetchrow(
            "SELECT state, ended_at, lease_expires_at, busy, progress FROM sessions WHERE session_id = $1", session_id
        )
        execution = await connection.fetchrow(
            "SELECT state, attempt, session_id FROM executions WHERE execution_id = $1", execution_id
        )
        kept = await connection.fetchval(
            "SELECT (SELECT count(*) FROM checkpoints WHERE execution_id = $1)"
            " + (SELECT count(*) FROM artifacts WHERE execution_id = $1)",
            execution_id,
        )
    assert session is not None and execution is not None
    return tuple(session.values()), tuple(execution.values()), kept


@pytest.mark.parametrize("cached", [True, False], ids=["session known", "another api process"])
@pytest.mark.parametrize("forger", ["second token", "same token without the key", "same token, wrong key"])
async def test_nobody_else_can_act_for_a_session(
    cluster: Cluster, queue: str, issue: Issue, forger: str, cached: bool
) -> None:
    token = await issue("worker") if forger == "second token" else cluster.worker_token
    async with running(cluster, queue) as (client, worker, given):
        session_id = worker.session_id
        key = {"second token": worker.key, "same token, wrong key": "x" * len(worker.key)}.get(forger)
        before = await state_of(cluster, session_id, given.execution_id)
        headers = {} if key is None else {wire.SESSION_KEY: key}
        query = {"session_id": str(session_id), "execution_id": str(given.execution_id), "attempt": "1", "name": "a"}
        async with bare(cluster, token, **headers, **{wire.CREDENTIAL: given.credential}) as http:

            async def refused(answer: httpx2.Response) -> None:
                assert answer.status_code in (403, 409), (answer.request.url, answer.status_code)
                assert answer.json()["code"] in ("not_session_owner", "session_ended")

            for path, body in messages(session_id, given).items():
                if not cached:
                    cluster.context.dispatcher.sessions.forget(session_id)
                await refused(await http.post(path, content=encode(body)))
            if not cached:
                cluster.context.dispatcher.sessions.forget(session_id)
            await refused(await http.post("artifacts", params=query, content=b"forged"))
            await refused(await http.get("artifacts", params=query | {"source": query["execution_id"]}))
        async with stream_of(cluster, session_id, token=token, key=key or "") as stream:
            assert (stream.status, stream.problem["code"]) == (403, "not_session_owner")
        assert await state_of(cluster, session_id, given.execution_id) == before
        assert (await worker.beat(given.execution_id)).gone == []
        assert (await worker.tell(given, "succeeded", b"real")).stale == []
        assert [c.text for c in (await client.logs(given.execution_id)).chunks] == ["real"]


async def test_a_forged_goodbye_leaves_the_stream_open(cluster: Cluster, queue: str, issue: Issue) -> None:
    """The id of a session is no secret: every job has it in its environment."""
    async with (
        cluster.client() as client,
        remote(cluster, queue=queue, takes=TAKES) as worker,
        stream_of(cluster, worker.session_id, free=1, key=worker.key) as stream,
        bare(cluster, await issue("worker")) as http,
    ):
        answer = await http.post("goodbye", content=encode(wire.Goodbye(session_id=worker.session_id, lost=True)))
        assert answer.status_code == 403
        job = await client.create_job({"name": f"job-{queue}", "task": {"kind": "noop"}, "queue": queue})
        await client.trigger(job.name)
        await stream.received(1)
        assert not stream.ended


async def test_a_worker_without_a_key_is_bound_to_its_token(cluster: Cluster, queue: str, issue: Issue) -> None:
    """An older worker sends no key; a second token cannot act for it either."""
    async with cluster.client() as client, remote(cluster, queue=queue) as worker:
        assert worker.key == ""
        job = await client.create_job({"name": f"job-{queue}", "task": {"kind": "noop"}, "queue": queue})
        await client.trigger(job.name)
        (given,) = (await worker.poll()).executions
        async with bare(cluster, await issue("worker")) as http:
            for path, body in messages(worker.session_id, given).items():
                assert (await http.post(path, content=encode(body))).status_code == 403, path
        saved = wire.SaveCheckpoints(
            session_id=worker.session_id, checkpoints=[wire.CheckpointReport(given.execution_id, 1, {"n": 1})]
        )
        await worker.link.save_checkpoints(saved)
        ask = wire.ReadCheckpoints(session_id=worker.session_id, executions=[given.execution_id])
        assert (await worker.link.read_checkpoints(ask)).checkpoints == {given.execution_id: {"n": 1}}
        assert (await worker.tell(given)).stale == []


async def test_a_session_of_an_older_server_is_served(cluster: Cluster, queue: str) -> None:
    """It has neither token nor key; its worker goes on while the servers are replaced."""
    session_id = uuid4()
    async with cluster.database.connection() as connection:
        await sessions.insert_session(
            connection, tenant=1, session_id=session_id, worker_id=uuid4(), register=registration(), lease_s=60
        )
    async with bare(cluster, cluster.worker_token) as http:
        beat = wire.Heartbeat(session_id=session_id, running=[])
        assert (await http.post("heartbeat", content=encode(beat))).status_code == 200
        assert (await http.post("goodbye", content=encode(wire.Goodbye(session_id=session_id)))).status_code == 200


async def test_only_the_digest_of_the_key_is_stored(cluster: Cluster, queue: str) -> None:
    async with remote(cluster, queue=queue, takes=TAKES) as worker, cluster.database.connection() as connection:
        row = str(await connection.fetchrow("SELECT * FROM sessions WHERE session_id = $1", worker.session_id))
        assert len(worker.key) >= 43 and worker.key not in row


# Attempts ----------------------------------------------------------------------------------------------------


async def test_a_credential_is_for_one_attempt_only(cluster: Cluster, queue: str) -> None:
    async with running(cluster, queue) as (client, worker, given):
        job = await client.create_job({"name": f"job-{uuid4()}", "task": {"kind": "noop"}, "queue": queue})
        await client.trigger(job.name)
        (other,) = (await worker.poll()).executions
        assert given.credential and other.credential != given.credential

        async def content() -> AsyncIterator[bytes]:
            yield b"x"

        query = {"session_id": str(worker.session_id), "execution_id": str(given.execution_id), "attempt": "1"}
        for wrong in ("", other.credential, "0" * 32):
            with pytest.raises(Refused) as refused:
                await worker.link.upload(query | {"name": "a"}, wrong, 1, content())
            assert refused.value.code == "not_attempt_owner"
            saved = wire.SaveCheckpoints(
                session_id=worker.session_id,
                checkpoints=[
                    wire.CheckpointReport(other.execution_id, 1, 1),
                    wire.CheckpointReport(given.execution_id, 1, 2),
                ],
                credentials=[other.credential, wrong] if wrong else [other.credential],
            )
            with pytest.raises(Refused) as refused:
                await worker.link.save_checkpoints(saved)
            assert refused.value.code == "not_attempt_owner"
            ask = wire.ReadCheckpoints(
                session_id=worker.session_id,
                executions=[given.execution_id],
                attempts=[1],
                credentials=[wrong] if wrong else [],
            )
            with pytest.raises(Refused):
                await worker.link.read_checkpoints(ask)
        await worker.link.upload(query | {"name": "a"}, given.credential, 1, content())
        assert [a.name for a in (await client.artifacts(given.execution_id)).items] == ["a"]


async def test_a_credential_ends_with_its_attempt(cluster: Cluster, queue: str) -> None:
    async with running(cluster, queue) as (_, worker, given):
        await worker.tell(given, "preempted")
        (again,) = (await worker.poll()).executions
        assert (again.execution_id, again.attempt) == (given.execution_id, 2)
        query = {"session_id": str(worker.session_id), "execution_id": str(given.execution_id), "name": "a"}

        async def content() -> AsyncIterator[bytes]:
            yield b"x"

        for attempt, credential, code in (("1", given.credential, "not_held"), ("2", given.credential, None)):
            with pytest.raises(Refused) as refused:
                await worker.link.upload(query | {"attempt": attempt}, credential, 1, content())
            assert refused.value.code == (code or "not_attempt_owner")
        ask = wire.ReadCheckpoints(
            session_id=worker.session_id,
            executions=[given.execution_id],
            attempts=[1],
            credentials=[given.credential],
        )
        saved = wire.SaveCheckpoints(
            session_id=worker.session_id,
            checkpoints=[wire.CheckpointReport(again.execution_id, 2, "second")],
            credentials=[again.credential],
        )
        await worker.link.save_checkpoints(saved)
        assert (await worker.link.read_checkpoints(ask)).checkpoints == {}, "the first attempt has ended"


# Real workers ------------------------------------------------------------------------------------------------

SCRIPT = (
    "echo x > $MAINSPRING_ARTIFACTS/kept; echo 1/2 > $MAINSPRING_PROGRESS;"
    " if test -s $MAINSPRING_CHECKPOINT; then cat $MAINSPRING_CHECKPOINT;"
    " else echo 7 > $MAINSPRING_CHECKPOINT; exit 1; fi"
)


@pytest.mark.parametrize("older_api", [False, True], ids=["with a key", "an older api without keys"])
@pytest.mark.parametrize("streams", [True, False], ids=["stream", "polls"])
async def test_a_worker_keeps_artifacts_and_checkpoints(
    cluster: Cluster, queue: str, monkeypatch: pytest.MonkeyPatch, older_api: bool, streams: bool
) -> None:
    registered: list[wire.Registered] = []
    register = ApiClient.register

    async def recording(self: ApiClient, body: wire.Register) -> wire.Registered:
        if older_api:
            body = msgspec.structs.replace(body, takes=["preempt"])
        registered.append(await register(self, body))
        return registered[-1]

    monkeypatch.setattr(ApiClient, "register", recording)
    async with cluster.client() as client, cluster.worker(queues=[queue], streams=streams):
        spec: dict[str, Any] = {
            "name": f"job-{queue}",
            "queue": queue,
            "task": {"kind": "shell", "argv": [SCRIPT], "shell": True},
            "retries": {"max": 1, "base": "0.1s"},
        }
        await client.create_job(spec)
        done = await client.wait((await client.trigger(spec["name"])).execution_id, timeout_s=60)
        assert (done.state, done.attempt) == ("succeeded", 2), done
        assert "7" in "".join(c.text for c in (await client.logs(done.execution_id)).chunks)
        assert [a.name for a in (await client.artifacts(done.execution_id)).items] == ["kept"]
    assert [bool(r.key) for r in registered] == [not older_api]
