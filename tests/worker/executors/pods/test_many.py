"""Many pods at once on nodes that kwok plays, submitted to a server and executed by a worker process."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from mainspring import wire
from tests.conftest import Cluster
from tests.support.certificates import make_certificate
from tests.support.kubernetes_server import KubernetesServer, find_server
from tests.support.processes import free_port, until_async
from tests.support.worker_program import worker

pytestmark = pytest.mark.anyio

NAMESPACE = "jobs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
NODES = ("node-1", "node-2")
EACH = 20
ENDS: dict[str, dict[str, Any]] = {
    "good:1": {"exitCode": 0, "reason": "Completed"},
    "bad:1": {"exitCode": 3, "reason": "Error", "message": "boom"},
    "large:1": {"exitCode": 137, "reason": "OOMKilled"},
}


def stage(name: str, phase: str, **more: Any) -> dict[str, Any]:
    """A step in the life of a pod, as kwok takes it."""
    expressions = [
        {"key": ".status.phase", "operator": "In", "values": [phase]},
        {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
        *more.pop("expressions", ()),
    ]
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"}, "selector": {"matchExpressions": expressions},
            "delay": {"durationMilliseconds": 100, "jitterDurationMilliseconds": 300},
        } | more,
    }  # fmt: skip


def stages(log: Path) -> list[dict[str, Any]]:
    """Pods start, and end as their image says; deleted ones go."""
    instants = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"}

    def status(phase: str, state: dict[str, Any]) -> dict[str, Any]:
        container = {"name": "job", "image": "i", "imageID": "i", "ready": False, "restartCount": 0, "state": state}
        template = yaml.safe_dump({"phase": phase, "containerStatuses": [container]})
        return {"next": {"statusTemplate": template}}

    found = [stage("start", "Pending", **status("Running", {"running": {"startedAt": instants["startedAt"]}}))]
    for image, end in ENDS.items():
        by_image = [{"key": ".spec.containers[].image", "operator": "In", "values": [image]}]
        phase = "Failed" if end["exitCode"] else "Succeeded"
        ended = status(phase, {"terminated": instants | end})
        found.append(stage(f"end-{image[:-2]}", "Running", expressions=by_image, **ended))
    gone = stage("delete", "Running", next={"finalizers": {"empty": True}, "delete": True})
    gone["spec"]["selector"]["matchExpressions"] = [{"key": ".metadata.deletionTimestamp", "operator": "Exists"}]
    logs = {
        "apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "ClusterLogs", "metadata": {"name": "all"},
        "spec": {"logs": [{"containers": ["job"], "logsFile": str(log), "follow": False}]},
    }  # fmt: skip
    return [*found, gone, logs]


@pytest.fixture(scope="module")
async def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KubernetesServer]:
    kwok = find_server("kwok")
    folder = tmp_path_factory.mktemp("kubernetes")
    server = KubernetesServer(folder)
    await server.start()
    await server.make_namespace(NAMESPACE)
    (folder / "pod.log").write_text("2026-01-01T00:00:00.000000001Z stdout F hello\n")
    (folder / "stages.yaml").write_text(yaml.safe_dump_all(stages(folder / "pod.log")))
    key, certificate = await asyncio.to_thread(make_certificate, folder)
    port = free_port()
    command = [
        kwok, "--manage-all-nodes", f"--kubeconfig={server.kubeconfig(folder / 'config.yaml')}",
        f"--config={folder / 'stages.yaml'}", "--node-ip=127.0.0.1", f"--node-port={port}",
        f"--server-address=127.0.0.1:{port}", f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}",
    ]  # fmt: skip
    process = spawn(folder / "kwok.log", *map(str, command))
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    for name in NODES:
        await server.request("POST", "/api/v1/nodes", {"metadata": {"name": name}})
        await server.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})
    scheduling = asyncio.create_task(schedule(server))
    yield server
    scheduling.cancel()
    process.kill()
    process.wait()
    await server.stop()


def spawn(log: Path, *command: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=file)


async def schedule(server: KubernetesServer) -> None:
    """Give every new pod a node, in turn."""
    turn, version = 0, "0"
    while True:
        query = {"watch": "true", "resourceVersion": version}
        async with server.client.stream("GET", PODS, params=query, timeout=None) as answer:
            async for line in answer.aiter_lines():
                pod = json.loads(line)["object"]
                version = pod["metadata"]["resourceVersion"]
                if pod["spec"].get("nodeName"):
                    continue
                turn += 1
                name, target = pod["metadata"]["name"], {"kind": "Node", "name": NODES[turn % len(NODES)]}
                with suppress(AssertionError):  # it is gone
                    await server.request(
                        "POST", f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": target}
                    )


async def test_many_pods_end_as_their_containers_do(
    cluster: Cluster, kubernetes: KubernetesServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.kubeconfig(tmp_path / "config.yaml")))
    queue = f"q{uuid4().hex}"
    async with cluster.client() as client:
        runs = []
        for image in ENDS:
            name = f"{queue}-{image[:-2]}"
            settings = {"image": image, "command": ["x"]}
            task = {"kind": "plugin", "type": "pod", "settings": settings}
            job = {"name": name, "task": task, "queue": queue, "resources": {"memory": "64Mi"}, "retries": {"max": 0}}
            await client.create_job(job)
            runs += [await client.trigger(name, wire.RunNow()) for _ in range(EACH)]
        options = ("-q", queue, "--slots", "100", "--kube-namespace", NAMESPACE, "--resources", "memory=100Gi")
        async with worker(tmp_path, cluster.url, cluster.worker_token, *options):
            ended = [await client.wait(run.execution_id, timeout_s=120) for run in runs]
            assert Counter((done.state, done.exit_code, done.error) for done in ended) == {
                ("succeeded", 0, None): EACH,
                ("failed", 3, "exit code 3: boom"): EACH,
                ("failed", 137, "out of memory: it used more than 64Mi"): EACH,
            }
            for run in runs:
                assert [chunk.text for chunk in (await client.logs(run.execution_id)).chunks] == ["hello\n"]

            async def all_gone() -> bool:
                return not (await kubernetes.request("GET", PODS))["items"]

            await until_async("the removal of every pod", all_gone, within_s=60)
