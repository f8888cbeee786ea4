"""Lost answers, restarts and dead workers: no pod is created twice, and none is left."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from mainspring.worker.executors import Done
from mainspring.worker.executors.pods import cluster as access_to
from mainspring.worker.executors.pods.cluster import ClusterSettings
from mainspring.worker.executors.pods.executor import PodExecutor
from mainspring.worker.executors.pods.manifest import OWNER
from mainspring.worker.executors.pods.ownership import PREFIX, Ownership
from tests.conftest import Cluster
from tests.support.attempts import written
from tests.support.kubelet import Kubelet
from tests.support.kubernetes_server import KubernetesServer
from tests.support.lossy_proxy import LossyProxy
from tests.support.pods import (
    LEASES,
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
    until_gone,
    until_written,
)
from tests.support.processes import until
from tests.support.worker_program import worker

pytestmark = pytest.mark.anyio


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
