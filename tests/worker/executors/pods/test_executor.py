"""The pod kind against a real API server, whose one node the test plays."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from mainspring import wire
from mainspring.domain.errors import Invalid
from mainspring.domain.plugin import PluginTask
from mainspring.worker.executors import Done, Work
from mainspring.worker.executors.pods import cluster as access_to
from mainspring.worker.executors.pods.cluster import ClusterSettings
from mainspring.worker.executors.pods.executor import PodExecutor
from mainspring.worker.executors.pods.manifest import OWNER
from mainspring.worker.executors.pods.ownership import PREFIX, Ownership
from tests.conftest import Cluster
from tests.support.attempts import attempt, host, written
from tests.support.kubelet import Kubelet
from tests.support.kubernetes_server import KubernetesServer, find_server
from tests.support.lossy_proxy import LossyProxy
from tests.support.processes import until, until_async
from tests.support.worker_program import worker

pytestmark = pytest.mark.anyio

NAMESPACE = "jobs"
PODS, SECRETS = f"/api/v1/namespaces/{NAMESPACE}/pods", f"/api/v1/namespaces/{NAMESPACE}/secrets"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
SECRET = "hunter2-and-more"
WAIT_S = 60


@pytest.fixture(scope="module")
async def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KubernetesServer]:
    find_server("kube-apiserver")
    server = KubernetesServer(tmp_path_factory.mktemp("kubernetes"))
    await server.start()
    await server.make_namespace(NAMESPACE)
    yield server
    await server.stop()


@pytest.fixture
async def kubelet(kubernetes: KubernetesServer, tmp_path: Path) -> AsyncIterator[Kubelet]:
    kubelet = Kubelet(kubernetes, NAMESPACE, tmp_path / "kubelet")
    await kubelet.start()
    yield kubelet
    await until_async("the removal of every pod and Secret", lambda: is_empty(kubernetes), within_s=WAIT_S)
    await kubelet.stop()


async def is_empty(kubernetes: KubernetesServer) -> bool:
    found = [await kubernetes.request("GET", path) for path in (PODS, SECRETS)]
    return not any(each["items"] for each in found)


@asynccontextmanager
async def executing(
    kubernetes: KubernetesServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *allow: str,
    lease_s: int = 60,
    **config: Any,
) -> AsyncIterator[PodExecutor]:
    path = kubernetes.kubeconfig(tmp_path / f"{uuid4().hex}.yaml", **config)
    monkeypatch.setenv("KUBECONFIG", str(path))
    executor = PodExecutor(lease_s=lease_s)
    await executor.start(host(name="the-worker", cluster=ClusterSettings(NAMESPACE, allow=allow)))
    try:
        yield executor
    finally:
        for task in _begun:
            task.cancel()
        await asyncio.gather(*_begun, return_exceptions=True)
        _begun.clear()
        await executor.stop()


@pytest.fixture
async def executor(
    kubernetes: KubernetesServer, kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PodExecutor]:
    async with executing(kubernetes, tmp_path, monkeypatch) as executor:
        yield executor


def script(text: str, **more: Any) -> PluginTask:
    return PluginTask("pod", {"image": "busybox:1.36", "command": ["/bin/sh", "-c", text]} | more)


def first_attempt(task: PluginTask, *, number: int = 1, **more: Any) -> Work:
    work = attempt(task, **more)
    work.assignment = msgspec.structs.replace(work.assignment, attempt=number)
    return work


async def see(executor: PodExecutor, task: PluginTask, **more: Any) -> tuple[Done, Work]:
    work = first_attempt(task, **more)
    done = await executor.execute(work)
    work.finish_output()
    return done, work


_begun: set[asyncio.Task[Done]] = set()


def begin(executor: PodExecutor, work: Work) -> asyncio.Task[Done]:
    """Start an attempt that ends with its executor at the latest."""
    task = asyncio.create_task(executor.execute(work))
    _begun.add(task)
    return task


async def until_written(work: Work, text: str) -> None:
    seen: list[str] = []

    def there() -> bool:
        seen.append(written(work))
        return text in "".join(seen)

    await until(f"{text!r} in the output", there, within_s=WAIT_S)


def pod_name(work: Work) -> str:
    return f"mainspring-{work.assignment.execution_id}-{work.assignment.attempt}"


async def until_gone(kubernetes: KubernetesServer, path: str) -> None:
    async def gone() -> bool:
        return await kubernetes.find(path) is None

    await until_async(f"the removal of {path}", gone, within_s=WAIT_S)


# One attempt -----------------------------------------------------------------------------------------


async def test_output_environment_and_exit_code_come_back(executor: PodExecutor) -> None:
    task = script(
        'echo "$GREETING from $MAINSPRING_JOB, attempt $MAINSPRING_ATTEMPT"; echo oops >&2; exit 3',
        env={"GREETING": "{{params.word}}"},
    )
    done, work = await see(executor, task, params={"word": "hello $(MAINSPRING_JOB) $$"})
    assert (done.outcome, done.exit_code, done.retry) == ("failed", 3, True)
    assert done.error is not None and done.error.startswith("exit code 3: oops\n")
    assert written(work) == "hello $(MAINSPRING_JOB) $$ from the-job, attempt 1\noops\n"


async def test_the_log_is_complete_and_in_order(executor: PodExecutor) -> None:
    done, work = await see(executor, script("seq 1 3000; printf 'no newline at the end'"))
    assert done == Done("succeeded", 0)
    assert written(work) == "".join(f"{n}\n" for n in range(1, 3001)) + "no newline at the end"


async def test_a_log_whose_connection_is_cut_continues_without_gap_or_repetition(
    executor: PodExecutor, kubelet: Kubelet
) -> None:
    kubelet.cut_logs = [1, 3, 4]
    done, work = await see(executor, script("for n in 1 2 3 4 5 6; do echo line $n; sleep 0.02; done"))
    assert done == Done("succeeded", 0)
    assert written(work) == "".join(f"line {n}\n" for n in range(1, 7))
    assert len(kubelet.log_requests) >= 4 and "sinceTime" in kubelet.log_requests[-1]


async def test_a_secret_reaches_the_program_and_not_the_pod(
    executor: PodExecutor, kubelet: Kubelet, kubernetes: KubernetesServer, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    task = script(
        f'printf %s "$DB" | sha256sum; while [ ! -e {go} ]; do sleep 0.02; done', env={"DB": "pre {{secret:db}}"}
    )
    work = first_attempt(task)
    work.secrets = {"db": SECRET}
    running = begin(executor, work)
    await until_written(work, "-")
    secret = await kubernetes.request("GET", f"{SECRETS}/{pod_name(work)}")
    pod = await kubernetes.request("GET", f"{PODS}/{pod_name(work)}")
    (owner,) = secret["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Pod", pod["metadata"]["uid"])
    assert secret["immutable"] is True and list(secret["data"]) == ["DB"]
    assert SECRET not in json.dumps([pod, kubelet.seen])
    go.touch()
    assert await running == Done("succeeded", 0)
    await until_gone(kubernetes, f"{SECRETS}/{pod_name(work)}")


async def test_a_pod_carries_who_it_belongs_to(executor: PodExecutor, kubelet: Kubelet) -> None:
    _, work = await see(executor, script("true"))
    (pod,) = [pod for pod in kubelet.seen if pod["metadata"]["name"] == pod_name(work)]
    labels = pod["metadata"]["labels"]
    assert labels["mainspring.io/execution"] == str(work.assignment.execution_id)
    assert labels["mainspring.io/session"] == str(work.session_id)
    assert labels["mainspring.io/worker"] == "the-worker"
    assert pod["spec"]["restartPolicy"] == "Never" and pod["spec"]["activeDeadlineSeconds"] == 130


# End by request --------------------------------------------------------------------------------------


async def test_a_cancelled_pod_gets_its_grace_and_is_gone(
    executor: PodExecutor, kubelet: Kubelet, kubernetes: KubernetesServer
) -> None:
    work = first_attempt(script("trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.02; done"))
    running = begin(executor, work)
    await until_written(work, "up")
    work.request_stop("cancelled")
    done = await running
    assert (done.outcome, done.exit_code, done.error) == ("cancelled", 7, "cancelled")
    assert written(work) == "bye\n"
    await until_gone(kubernetes, f"{PODS}/{pod_name(work)}")
    assert not any(map(kubelet.running, kubelet.pods))


async def test_a_timeout_ends_a_program_that_ignores_sigterm(executor: PodExecutor, kubelet: Kubelet) -> None:
    task = script("trap '' TERM; echo up; while :; do sleep 0.02; done", grace=1)
    done, _ = await see(executor, task, timeout_s=3)
    assert (done.outcome, done.exit_code, done.error) == ("timed_out", 137, "timed out after 3 s")
    assert not any(map(kubelet.running, kubelet.pods))


async def test_a_lost_session_does_not_wait_for_the_grace_of_its_pods(
    executor: PodExecutor, kubernetes: KubernetesServer, kubelet: Kubelet, tmp_path: Path
) -> None:
    """The worker registers again at once. The pod has its time, and the next attempt waits for it."""
    go = tmp_path / "go"
    work = first_attempt(
        script(f"trap 'while [ ! -e {go} ]; do sleep 0.02; done; exit 0' TERM; echo up; sleep 600 & wait")
    )
    running = begin(executor, work)
    await until_written(work, "up")
    work.request_stop("lost")
    assert (await running).outcome == "lost"
    assert await kubernetes.find(f"{PODS}/{pod_name(work)}") is not None
    go.touch()
    await until_gone(kubernetes, f"{PODS}/{pod_name(work)}")


async def test_a_pod_that_waits_for_a_node_is_cancelled_at_once(
    executor: PodExecutor, kubelet: Kubelet, kubernetes: KubernetesServer
) -> None:
    kubelet.holds = True
    work = first_attempt(script("true"))
    running = begin(executor, work)

    async def created() -> bool:
        return await kubernetes.find(f"{PODS}/{pod_name(work)}") is not None

    await until_async("the pod", created, within_s=WAIT_S)
    work.request_stop("cancelled")
    assert (await running).outcome == "cancelled"
    assert await kubernetes.find(f"{PODS}/{pod_name(work)}") is None


# End by the cluster ----------------------------------------------------------------------------------


ENDS: list[tuple[dict[str, Any], Done]] = [
    (
        {"container": {"exitCode": 137, "reason": "OOMKilled"}},
        Done("failed", 137, "out of memory: it used more than 64Mi"),
    ),
    (
        {"reason": "Evicted", "message": "The node was low on resource: memory."},
        Done("failed", None, "evicted (node test-node): The node was low on resource: memory."),
    ),
    ({"reason": "DeadlineExceeded"}, Done("timed_out", None, "timed out after 60 s")),
    ({"reason": "NodeLost"}, Done("lost", None, "the node was lost (node test-node): NodeLost")),
    (
        {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]},
        Done("preempted", None, "preempted by a pod with a higher priority (node test-node)"),
    ),
]


@pytest.mark.parametrize(("status", "expected"), ENDS, ids=[str(done.error)[:20] for _, done in ENDS])
async def test_what_the_cluster_does_to_a_pod_is_the_outcome(
    executor: PodExecutor, kubelet: Kubelet, status: dict[str, Any], expected: Done
) -> None:
    work = first_attempt(script("echo up; exec sleep 600"))
    work.definition = msgspec.structs.replace(work.definition, resources={"memory": 64 << 20, "cpu": 100})
    running = begin(executor, work)
    await until_written(work, "up")
    status = dict(status)
    if "containerStatuses" not in status and "container" not in status:
        status["containerStatuses"] = []
    await kubelet.fail(pod_name(work), **status)
    done = await running
    assert (done.outcome, done.exit_code, done.error) == (expected.outcome, expected.exit_code, expected.error)


async def test_a_pod_that_someone_deletes_fails_with_that_reason(
    executor: PodExecutor, kubelet: Kubelet, kubernetes: KubernetesServer
) -> None:
    work = first_attempt(script("echo up; exec sleep 600"))
    running = begin(executor, work)
    await until_written(work, "up")
    await kubernetes.request("DELETE", f"{PODS}/{pod_name(work)}")
    done = await running
    assert (done.outcome, done.retry) == ("failed", True)
    assert done.error == "the pod was deleted by another client of the cluster (node test-node)"


@pytest.mark.parametrize(
    ("more", "error", "retry"),
    [
        (
            {"image": "missing:1", "start_timeout": "2s"},
            r"cannot pull the image missing:1 within [23]s: ErrImagePull: manifest unknown",
            True,
        ),
        (
            {"image": "Invalid:1"},
            r"the container can't be created: InvalidImageName: manifest unknown",
            False,
        ),
        (
            {"node_selector": {"disk": "ssd"}, "start_timeout": "2s"},
            r"no node for the pod within [23]s: Unschedulable: 0/1 nodes are available: .* affinity/selector\.",
            True,
        ),
    ],
)
async def test_a_pod_that_cannot_start_says_why(
    executor: PodExecutor, more: dict[str, Any], error: str, retry: bool
) -> None:
    done, _ = await see(executor, script("true", **more))
    assert (done.outcome, done.retry) == ("failed", retry)
    assert re.fullmatch(error, str(done.error)), done.error


async def test_a_pod_that_the_cluster_refuses_is_not_retried(executor: PodExecutor) -> None:
    task = script("true", volumes=[{"mount": "/x", "scratch": "9999999999Ti"}], workdir="/srv", gpu_resource="gpu")
    work = first_attempt(task)
    work.definition = msgspec.structs.replace(work.definition, resources={"gpu": 1})
    done = await executor.execute(work)
    assert (done.outcome, done.retry) == ("failed", False)
    assert str(done.error).startswith("the cluster refused the pod: Pod ")


# Lost answers, restarts and orphans ------------------------------------------------------------------


@pytest.mark.parametrize("lost", [rb"POST \S+/pods ", rb"POST \S+/secrets ", rb"PATCH \S+/secrets/"])
async def test_a_creation_whose_answer_is_lost_is_found_again(
    kubernetes: KubernetesServer, kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bytes
) -> None:
    proxy = LossyProxy(kubernetes.port)
    await proxy.start()
    async with executing(kubernetes, tmp_path, monkeypatch, url=proxy.url) as executor:
        proxy.lose = [re.compile(lost), re.compile(lost)]
        work = first_attempt(script("echo once", env={"DB": "secret://db"}))
        work.secrets = {"db": SECRET}
        done = await executor.execute(work)
        assert done == Done("succeeded", 0)
        assert proxy.lost == 2
        assert written(work) == "once\n"
        assert [pod["metadata"]["name"] for pod in kubelet.seen].count(pod_name(work)) == 1
    await proxy.stop()


async def test_a_pod_outlives_the_restart_of_the_api_server(
    executor: PodExecutor, kubernetes: KubernetesServer, kubelet: Kubelet, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    work = first_attempt(script(f"echo up; while [ ! -e {go} ]; do sleep 0.02; done; echo done; exit 4"))
    running = begin(executor, work)
    await until_written(work, "up")
    kubernetes.kill_apiserver()
    await kubernetes.start_apiserver()
    go.touch()
    done = await running
    assert (done.outcome, done.exit_code) == ("failed", 4)
    assert written(work) == "done\n"


async def test_a_pod_that_vanished_while_the_cluster_was_unreachable_is_missed(
    kubernetes: KubernetesServer, kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = LossyProxy(kubernetes.port)
    await proxy.start()
    async with executing(kubernetes, tmp_path, monkeypatch, url=proxy.url) as executor:
        work = first_attempt(script("echo up; exec sleep 600"))
        running = begin(executor, work)
        await until_written(work, "up")
        await proxy.stop()
        await kubernetes.request("DELETE", f"{PODS}/{pod_name(work)}", {"gracePeriodSeconds": 0})
        await until_gone(kubernetes, f"{PODS}/{pod_name(work)}")
        await proxy.start()
        done = await running
        assert done.error == "the pod was deleted by another client of the cluster (node test-node)"
    await proxy.stop()


async def test_a_second_attempt_waits_until_the_first_pod_is_gone(
    executor: PodExecutor, kubernetes: KubernetesServer, kubelet: Kubelet, tmp_path: Path
) -> None:
    """The worker of the first attempt died; its pod may not write beside the second one."""
    log = tmp_path / "log"
    body = f"trap 'sleep 0.5; echo first ends >> {log}; exit 0' TERM; echo up; while :; do sleep 0.02; done"
    first = first_attempt(script(body))
    orphaned = begin(executor, first)
    await until_written(first, "up")
    second = first_attempt(script(f"echo second begins >> {log}"), number=2)
    second.assignment = msgspec.structs.replace(second.assignment, execution_id=first.assignment.execution_id)
    assert await executor.execute(second) == Done("succeeded", 0)
    assert log.read_text().splitlines() == ["first ends", "second begins"]
    await orphaned


async def test_pods_of_a_worker_that_died_are_removed_by_the_next(
    cluster: Cluster, kubernetes: KubernetesServer, kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kubernetes.kubeconfig(tmp_path / "config.yaml")
    monkeypatch.setenv("KUBECONFIG", str(path))
    queue = f"q{uuid4().hex}"
    task = {"kind": "plugin", "type": "pod", "settings": {"image": "a:1", "command": ["sleep", "600"]}}
    async with cluster.client() as client:
        job = {"name": queue, "task": task, "queue": queue, "retries": {"max": 0}, "delivery": "at_most_once"}
        await client.create_job(job)
        run = await client.trigger(queue)
        options = ("-q", queue, "--name", queue, "--kube-namespace", NAMESPACE)
        async with worker(tmp_path, cluster.url, cluster.worker_token, *options) as program:
            await until("the pod's process", lambda: any(map(kubelet.running, kubelet.pods)), within_s=WAIT_S)
            program.send(signal.SIGKILL)
        done = await client.wait(run.execution_id, timeout_s=WAIT_S)
        assert done.state == "lost"
    (pod,) = (await kubernetes.request("GET", PODS))["items"]
    lease = f"{LEASES}/{PREFIX}{pod['metadata']['labels'][OWNER]}"
    await kubernetes.request("PATCH", lease, {"spec": {"leaseDurationSeconds": 1}})
    async with executing(kubernetes, tmp_path, monkeypatch, lease_s=2) as living:
        work = first_attempt(script("echo up; exec sleep 600"))
        running = begin(living, work)
        await until_written(work, "up")
        await until_gone(kubernetes, f"{PODS}/{pod['metadata']['name']}")
        await until_gone(kubernetes, lease)
        assert not running.done(), "a worker that lives keeps its pods"
        work.request_stop("cancelled")
        await running


async def test_a_worker_leaves_the_pods_of_living_workers_alone(
    executor: PodExecutor, kubernetes: KubernetesServer, kubelet: Kubelet
) -> None:
    work = first_attempt(script("echo up; exec sleep 600"))
    running = begin(executor, work)
    await until_written(work, "up")
    access = access_to.Cluster(ClusterSettings(NAMESPACE))
    other = Ownership(access, "other")
    await other.start()
    for _ in range(3):
        await other.sweep()
    await other.stop(release=True)
    await access.close()
    pod = await kubernetes.request("GET", f"{PODS}/{pod_name(work)}")
    assert "deletionTimestamp" not in pod["metadata"] and not running.done()
    work.request_stop("cancelled")
    await running


async def test_an_owner_without_a_lease_is_gone_and_others_are_left_alone(
    kubernetes: KubernetesServer, kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = {"app.kubernetes.io/managed-by": "mainspring", OWNER: str(uuid4())}
    for name, marked in (("orphan", labels), ("foreign", {"app.kubernetes.io/managed-by": "helm"})):
        metadata = {"name": name, "labels": marked}
        await kubernetes.request("POST", SECRETS, {"metadata": metadata, "stringData": {"a": "b"}})
    async with executing(kubernetes, tmp_path, monkeypatch, lease_s=2):
        await until_gone(kubernetes, f"{SECRETS}/orphan")
        assert await kubernetes.find(f"{SECRETS}/foreign") is not None
    await kubernetes.request("DELETE", f"{SECRETS}/foreign")
    assert (await kubernetes.request("GET", LEASES))["items"] == [], "a worker that stops returns its Lease"


# Access to the cluster -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"token": "wrong"}, "--kube-namespace jobs: Unauthorized; check"),
        ({"url": "https://127.0.0.1:1"}, "--kube-namespace jobs: the cluster at https://127.0.0.1:1 does not answer"),
    ],
)
async def test_a_worker_without_access_does_not_start(
    kubernetes: KubernetesServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], words: str
) -> None:
    with pytest.raises(Invalid) as refused:
        async with executing(kubernetes, tmp_path, monkeypatch, **config):
            pass
    assert words in str(refused.value)


async def test_a_worker_without_rights_does_not_start(
    kubernetes: KubernetesServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await kubernetes.account_token(NAMESPACE, "default")
    with pytest.raises(Invalid, match=r"pods is forbidden: User .*system:serviceaccount:jobs:default"):
        async with executing(kubernetes, tmp_path, monkeypatch, token=token):
            pass


# With a server and a worker process ------------------------------------------------------------------


async def test_a_job_runs_as_a_pod_from_submission_to_its_log(
    cluster: Cluster, kubernetes: KubernetesServer, kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.kubeconfig(tmp_path / "config.yaml", context="prod")))
    queue = f"q{uuid4().hex}"
    settings = {
        "image": "busybox:1.36", "command": ["sh", "-c"], "args": ["echo $DB {{params.day}}"],
        "env": {"DB": "secret://pod-db"},
    }  # fmt: skip
    job = {
        "name": queue, "task": {"kind": "plugin", "type": "pod", "settings": settings}, "queue": queue,
        "params": {"day": {"type": "string", "default": "monday"}}, "resources": {"cpu": 0.1, "memory": "16Mi"},
    }  # fmt: skip
    async with cluster.client() as client:
        await client.put_secret("pod-db", wire.SecretSpec(value=SECRET, jobs=[queue]))
        await client.create_job(job)
        run = await client.trigger(queue)
        options = ("-q", queue, "--name", queue, "--kube-namespace", NAMESPACE, "--kube-context", "prod")
        async with worker(tmp_path, cluster.url, cluster.worker_token, *options):
            done = await client.wait(run.execution_id, timeout_s=WAIT_S)
            assert (done.state, done.exit_code) == ("succeeded", 0), done.error
            text = "".join(chunk.text for chunk in (await client.logs(run.execution_id)).chunks)
            assert text == "••• monday\n", "the value of a secret is masked"
            assert "pod" in next(w for w in (await client.workers()).items if w.name == queue).kinds
            bad = {"kind": "plugin", "type": "pod", "settings": {"image": "a", "hostNetwork": True}}
            with pytest.raises(Invalid) as refused:
                await client.create_job({"name": f"{queue}x", "task": bad, "queue": queue})
            assert [p.pointer for p in refused.value.problems] == ["/task/settings/hostNetwork"]
    assert SECRET not in json.dumps(kubelet.seen)
