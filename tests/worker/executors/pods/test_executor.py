"""The pod kind against a real API server, whose one node the test plays."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from mainspring import wire
from mainspring.domain.errors import Invalid
from mainspring.worker.executors import Done
from mainspring.worker.executors.pods.executor import PodExecutor
from tests.conftest import Cluster
from tests.support.attempts import written
from tests.support.kubelet import Kubelet
from tests.support.kubernetes_server import KubernetesServer
from tests.support.pods import (
    NAMESPACE,
    PODS,
    SECRET,
    SECRETS,
    WAIT_S,
    begin,
    executing,
    first_attempt,
    pod_name,
    script,
    see,
    until_gone,
    until_written,
)
from tests.support.processes import until_async
from tests.support.worker_program import worker

pytestmark = pytest.mark.anyio


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
